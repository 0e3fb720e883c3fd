// llama.cpp as a peer: reads {"tokens": [...], "max_new_tokens": N} a line, answers greedily.
// Usage: node serve.mjs MODEL.gguf THREADS
import { createInterface } from "node:readline";
import { getLlama } from "node-llama-cpp";

const [model_path, threads] = process.argv.slice(2);
const llama = await getLlama({ gpu: false, build: "never", logLevel: "error" });
const model = await llama.loadModel({ modelPath: model_path });
const context = await model.createContext({ contextSize: 2048, threads: Number(threads) });
const sequence = context.getSequence();
console.log(JSON.stringify({ ready: true, system: llama.systemInfo, threads: context.currentThreads }));

for await (const line of createInterface({ input: process.stdin })) {
  const { tokens, max_new_tokens } = JSON.parse(line);
  await sequence.clearHistory();
  const out = [];
  const began = performance.now();
  let first = began;
  // The model's own end-of-turn token ends the loop, as it does for every other arm.
  for await (const token of sequence.evaluate(tokens, { temperature: 0, yieldEogToken: true })) {
    if (out.length === 0) first = performance.now();
    out.push(token);
    if (out.length === max_new_tokens || model.isEogToken(token)) break;
  }
  const ended = performance.now();
  console.log(JSON.stringify({ tokens: out, prefill_ms: first - began, decode_ms: ended - first }));
}
