#pragma once

#include <cstdint>

#include "lockstep/datasets/images/internal/augmentation_draws.h"

namespace lockstep {

/// Values are (x - mean) / stddev, with x from 0, black, to 1.
struct ChannelScale {
  float mean = 0;
  float stddev = 1;
};

struct RgbScale {
  ChannelScale red, green, blue;
};

/// Change the brightness, contrast, saturation and hue of one image, in this order, compiled for one kind of
/// processor. All kinds give the same bits. Results may be written to where the image is.
struct ColourKernels {
  /// The three values of a pixel lie side by side.
  void (*interleaved)(const ImageChange& change, const RgbScale& scale, const float* from, float* to,
                      int64_t pixels);
  /// All red values come first, and all blue ones last.
  void (*planar)(const ImageChange& change, const RgbScale& scale, const float* from, float* to,
                 int64_t pixels);
  /// Brightness and contrast of an image with one channel.
  void (*grey)(const ImageChange& change, const ChannelScale& scale, const float* from, float* to,
               int64_t pixels);
};

/// Returns the kernels for the processor that runs this.
const ColourKernels& colour_kernels();

/// Return the kernels for every processor of the build's target, and for processors with AVX2; null if that
/// kind does not exist.
const ColourKernels* baseline_colour_kernels();
const ColourKernels* avx2_colour_kernels();

}  // namespace lockstep
