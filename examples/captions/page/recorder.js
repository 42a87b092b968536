// Collects the samples of the first channel into blocks of 0.1 s, as 16-bit integers.
const BLOCK_SAMPLES = 1600;

class Recorder extends AudioWorkletProcessor {
  constructor() {
    super();
    this.block = new Int16Array(BLOCK_SAMPLES);
    this.filled = 0;
  }

  process(inputs) {
    for (const sample of inputs[0][0] ?? []) {
      this.block[this.filled++] = Math.max(-32768, Math.min(32767, Math.round(32768 * sample)));
      if (this.filled === BLOCK_SAMPLES) {
        this.port.postMessage(this.block.slice());
        this.filled = 0;
      }
    }
    return true;
  }
}

registerProcessor("recorder", Recorder);
