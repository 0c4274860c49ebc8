#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <variant>

#include "lockstep/parameter_server/variables/partitioner.h"

namespace lockstep {

struct ConstantValues {
  double value = 0;
  bool operator==(const ConstantValues&) const = default;
};

/// From `low` up to `high`, which does not come itself but by rounding.
struct UniformValues {
  double low = 0;
  double high = 1;
  uint64_t seed = 0;
  bool operator==(const UniformValues&) const = default;
};

struct NormalValues {
  double mean = 0;
  double std = 1;
  uint64_t seed = 0;
  bool operator==(const NormalValues&) const = default;
};

/// What a variable begins with that is too large for one process to make and send: each parameter server
/// makes its own rows. A random value depends on the seed, its row and its place there alone, so that the
/// variable begins alike however it is cut. Two variables of one seed have rows in common.
using InitialValues = std::variant<ConstantValues, UniformValues, NormalValues>;

/// These rows of a variable. `like` has their shape but for the number of rows, and their dtype, float32 or
/// float64. Random numbers are Philox4x32-10's (Salmon, Moraes, Dror and Shaw, 2011) with the seed as key and
/// the row in the counter; normal ones by the method of Box and Muller (1958). Throws InvalidArgument for
/// numbers that are not finite, `high` below `low`, a negative `std`, another dtype, and a scalar `like`.
at::Tensor make_values(const InitialValues& initial, const RowRange& rows, const at::Tensor& like);

}  // namespace lockstep
