#pragma once

#include <optional>
#include <string>

/// Peak speeds of devices, as their makers state them.
namespace lockstep::measurement {

/// The numbers that matrix products take.
enum class MatrixNumbers { kFloat64, kFloat32, kTf32, kBFloat16, kFloat16 };

/// Returns the floating-point operations per second that the maker of a GPU states for dense matrix products,
/// by the name that its driver gives, such as "NVIDIA H100 80GB HBM3". None if the GPU is not known, or
/// cannot multiply such numbers.
std::optional<double> gpu_peak_flops(const std::string& name, MatrixNumbers numbers);

}  // namespace lockstep::measurement
