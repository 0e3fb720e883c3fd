"""What processes that sum over one machine's links need in their environment."""

# Everything stays on this machine, and NVLink multicast stays off: a program that uses it can put
# a shared host's GPUs out of service.
ENVIRONMENT = {
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_NVLS_ENABLE": "0",
    "NVSHMEM_DISABLE_NVLS": "1",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
}
