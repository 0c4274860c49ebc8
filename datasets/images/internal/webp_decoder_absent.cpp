// In place of webp_decoder.cpp in builds without libwebp.
#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/images/internal/webp_decoder.h"

namespace lockstep {

DecodedImage decode_webp(std::span<const uint8_t>, const std::string& file, const DecodeLimits&) {
  throw DataError(
      file +
      ": cannot read WebP images, as this build of Lockstep has no libwebp: install libwebp-dev and "
      "build Lockstep again, or convert the image to PNG");
}

}  // namespace lockstep
