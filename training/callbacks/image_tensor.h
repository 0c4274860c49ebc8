#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace lockstep {

/// A PNG file of an image [channels, height, width] with 1 or 3 channels: uint8 as it is; floating-point
/// values stretched from the smallest, black, to the largest, white. Waits for the device. Throws
/// InvalidArgument for other shapes.
std::vector<uint8_t> encode_image(const torch::Tensor& image);

}  // namespace lockstep
