#include "lockstep/parameter_server/variables/initial_values.h"

#include <ATen/Dispatch.h>
#include <ATen/core/PhiloxRNGEngine.h>
#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>

#include <cmath>
#include <numbers>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

void check_finite(const char* name, double value) {
  if (!std::isfinite(value))
    throw InvalidArgument(c10::str("[InitialValues] expected a finite ", name, ", but got ", value));
}

void check(const ConstantValues& constant) {
  check_finite("value", constant.value);
}

void check(const UniformValues& uniform) {
  check_finite("low", uniform.low);
  check_finite("high", uniform.high);
  if (uniform.high < uniform.low)
    throw InvalidArgument(c10::str("[InitialValues] expected high of at least low, but got ", uniform.high,
                                   " and ", uniform.low));
}

void check(const NormalValues& normal) {
  check_finite("mean", normal.mean);
  check_finite("std", normal.std);
  if (normal.std < 0)
    throw InvalidArgument(c10::str("[InitialValues] expected std of 0 or more, but got ", normal.std));
}

/// A number in [0, 1) with 24 random bits, a float32's precision there.
double next_uniform(at::philox_engine& engine) {
  return (engine() >> 8) * 0x1p-24;
}

template <typename T>
void fill_row(const ConstantValues& constant, int64_t /*row*/, T* values, int64_t count) {
  std::fill_n(values, count, static_cast<T>(constant.value));
}

template <typename T>
void fill_row(const UniformValues& uniform, int64_t row, T* values, int64_t count) {
  at::philox_engine engine(uniform.seed, static_cast<uint64_t>(row));
  const double width = uniform.high - uniform.low;
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<T>(uniform.low + width * next_uniform(engine));
}

template <typename T>
void fill_row(const NormalValues& normal, int64_t row, T* values, int64_t count) {
  at::philox_engine engine(normal.seed, static_cast<uint64_t>(row));
  for (int64_t i = 0; i < count; i += 2) {
    // `1 - x` avoids the logarithm of zero.
    const double radius = normal.std * std::sqrt(-2 * std::log(1 - next_uniform(engine)));
    const double angle = 2 * std::numbers::pi * next_uniform(engine);
    values[i] = static_cast<T>(normal.mean + radius * std::cos(angle));
    if (i + 1 < count) values[i + 1] = static_cast<T>(normal.mean + radius * std::sin(angle));
  }
}

}  // namespace

at::Tensor make_values(const InitialValues& initial, const RowRange& rows, const at::Tensor& like) {
  std::visit([](const auto& numbers) { check(numbers); }, initial);
  if (!like.defined() || like.dim() == 0 ||
      (like.scalar_type() != at::kFloat && like.scalar_type() != at::kDouble))
    throw InvalidArgument(
        c10::str("[InitialValues] expected rows of float32 or float64, but got ",
                 like.defined() ? c10::str(like.scalar_type(), " of shape ", like.sizes()) : "none"));
  if (rows.begin < 0 || rows.size() < 0)
    throw InvalidArgument(
        c10::str("[InitialValues] expected rows of 0 or more, but got ", rows.begin, " to ", rows.end));
  auto sizes = like.sizes().vec();
  sizes[0] = rows.size();
  auto values = at::empty(sizes, like.options());
  if (values.numel() == 0) return values;
  const int64_t columns = values.numel() / rows.size();
  AT_DISPATCH_FLOATING_TYPES(values.scalar_type(), "make_values", [&] {
    scalar_t* next = values.mutable_data_ptr<scalar_t>();
    std::visit(
        [&](const auto& numbers) {
          for (int64_t row = rows.begin; row < rows.end; ++row, next += columns)
            fill_row(numbers, row, next, columns);
        },
        initial);
  });
  return values;
}

}  // namespace lockstep
