#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::apps {

/// The format and the size of an image, as its first bytes say.
struct ImageHeader {
  std::string format;  ///< PNG, JPEG, WebP or "none of these"
  int64_t width = 0;   ///< 0: not found
  int64_t height = 0;
};

/// Reads the header of an image, without decoding it. Believes no size in it.
ImageHeader read_image_header(std::string_view bytes);

}  // namespace lockstep::apps
