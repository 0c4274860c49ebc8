#pragma once

namespace lockstep {

/// How tokens are stored in a .bin file. All numbers are little-endian.
enum class TokenFormat {
  /// kLlmC if the file begins with one of its magic numbers, else kUint16.
  kAuto,
  /// One uint16 for each token and nothing else, as in nanoGPT's files.
  kUint16,
  /// One uint32 for each token and nothing else.
  kUint32,
  /// A header of 256 int32, as llm.c's files have: magic number, version, number of tokens, and the rest
  /// free. Magic number 20240520 of version 1 means uint16 tokens, 20240801 of version 7 uint32 tokens.
  kLlmC,
};

}  // namespace lockstep
