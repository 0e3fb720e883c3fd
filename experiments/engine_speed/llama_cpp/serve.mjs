// llama.cpp as a peer, through node-llama-cpp's ready binary.
// Usage: node serve.mjs MODEL.gguf THREADS; then, on standard input, one request a line:
//   {"tokens": [...], "max_new_tokens": N}   answer greedily, by the binding's own loop
//   {"tokens": [...], "replay": [...]}       feed known tokens one at a time: forwards alone,
//                                            without head and sampling
import { createInterface } from "node:readline";
import { getLlama } from "node-llama-cpp";

const [model_path, threads] = process.argv.slice(2);
const llama = await getLlama({ gpu: false, build: "never", logLevel: "error" });
const model = await llama.loadModel({ modelPath: model_path });
const context = await model.createContext({ contextSize: 2048, threads: Number(threads) });
const sequence = context.getSequence();

async function generate(tokens, max_new_tokens) {
  const out = [];
  let first;
  // The model's own end-of-turn token ends the loop, as it does for every other arm.
  for await (const token of sequence.evaluate(tokens, { temperature: 0, yieldEogToken: true })) {
    first ??= performance.now();
    out.push(token);
    if (out.length === max_new_tokens || model.isEogToken(token)) break;
  }
  return { tokens: out, decode_ms: performance.now() - first };
}

async function replay(tokens, known) {
  await sequence.evaluateWithoutGeneratingNewTokens(tokens);
  const began = performance.now();
  // The last token is answered, not read: as many forwards as a decode of the same length.
  for (const token of known.slice(0, -1)) await sequence.evaluateWithoutGeneratingNewTokens([token]);
  return { tokens: known, decode_ms: performance.now() - began };
}

console.log(JSON.stringify({ system: llama.systemInfo }));
for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  await sequence.clearHistory();
  const answer = request.replay
    ? await replay(request.tokens, request.replay)
    : await generate(request.tokens, request.max_new_tokens);
  console.log(JSON.stringify(answer));
}
