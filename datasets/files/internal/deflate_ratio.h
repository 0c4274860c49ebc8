#pragma once

#include <cstdint>

namespace lockstep {

/// Maximum number of bytes that one byte of a deflate stream inflates to: a run of at most 258 bytes takes at
/// least two bits. Readers reject a declared size beyond this ratio before they allocate memory.
inline constexpr uint64_t kMaxDeflateRatio = 1032;

}  // namespace lockstep
