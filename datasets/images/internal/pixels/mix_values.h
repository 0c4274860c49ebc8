#pragma once

#include <cstdint>

namespace lockstep {

/// Writes values[i] * weight + partners[i] * (1 - weight). The result must not overlap the others.
void mix_values(const float* values, const float* partners, float weight, int64_t count, float* mixed);

}  // namespace lockstep
