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

/// Uniform in [`low`, `high`). Rounding can still give `high`.
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

/// Initial values of a variable that may be too large for one process to make and send: each parameter server
/// makes its own rows. A random value depends only on the seed, its row and its place in the row, so the
/// variable is the same however it is cut. Two variables with the same seed have rows in common.
using InitialValues = std::variant<ConstantValues, UniformValues, NormalValues>;

/// Returns the initial values of these rows. `like` gives their shape, apart from the number of rows, and
/// their dtype, float32 or float64. Random numbers are from Philox4x32-10 (Salmon, Moraes, Dror and Shaw,
/// 2011) with the seed as key and the row in the counter; normal ones use the method of Box and Muller
/// (1958). Throws InvalidArgument if a number is not finite, `high` is below `low`, `std` or a row number is
/// negative, or `like` has another dtype or is a scalar.
at::Tensor make_values(const InitialValues& initial, const RowRange& rows, const at::Tensor& like);

}  // namespace lockstep
