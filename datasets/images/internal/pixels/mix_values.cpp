#include "lockstep/datasets/images/internal/pixels/mix_values.h"

namespace lockstep {

void mix_values(const float* __restrict values, const float* __restrict partners, float weight, int64_t count,
                float* __restrict mixed) {
  const float rest = 1 - weight;
  for (int64_t i = 0; i < count; ++i) mixed[i] = values[i] * weight + partners[i] * rest;
}

}  // namespace lockstep
