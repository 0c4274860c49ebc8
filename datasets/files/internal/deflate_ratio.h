#pragma once

#include <cstdint>

namespace lockstep {

/// How many bytes one byte of a deflate stream can inflate to: two bits at the least stand for a run of at
/// most 258. Whatever declares more than its length allows is refused before anything is allocated for it.
inline constexpr uint64_t kMaxDeflateRatio = 1032;

}  // namespace lockstep
