#pragma once

#include <string>

namespace lockstep {

/// Returns the name that the driver gives a GPU, such as "NVIDIA H100 80GB HBM3"; empty in a build without
/// CUDA.
std::string gpu_name(int index);

}  // namespace lockstep
