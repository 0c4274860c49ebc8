#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace lockstep {

/// Returns an image [channels, height, width] with 1 or 3 channels as a PNG file. uint8 values are kept;
/// other values are scaled so that the smallest becomes black and the largest white. Waits for the device.
/// Throws InvalidArgument for other shapes and for empty images.
std::vector<uint8_t> encode_image(const torch::Tensor& image);

}  // namespace lockstep
