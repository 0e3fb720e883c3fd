/* Independent fused multiply-adds in registers: the float32 ceiling of one core. */
#include <stdint.h>

#ifdef __AVX512F__
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif
typedef float vf __attribute__((vector_size(4 * LANES)));

int64_t fma_lanes(void) { return LANES; }

float fma_loop(int64_t rounds, float x) {
    vf acc[12], a = {0}, b = {0}, sum = {0};
    a += x, b += 1.0f - x;
    for (int j = 0; j < 12; j++) acc[j] = a * (float)j;
    for (int64_t i = 0; i < rounds; i++) {
#pragma GCC unroll 12
        for (int j = 0; j < 12; j++) acc[j] = acc[j] * a + b;
    }
    for (int j = 0; j < 12; j++) sum += acc[j];
    return sum[0];
}
