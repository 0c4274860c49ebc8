#include "lockstep/datasets/images/internal/jpeg_decoder.h"

#include <csetjmp>
#include <cstddef>
#include <cstdio>

// Order matters: jpeglib.h uses FILE and size_t without including them.
#include <jpeglib.h>

#include <jerror.h>

#include "lockstep/datasets/files/data_error.h"

namespace lockstep {
namespace {

struct JpegErrors {
  jpeg_error_mgr base;  // first: libjpeg's pointer to it is a pointer to the whole
  jmp_buf escape;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void on_error(j_common_ptr jpeg) {
  auto* errors = reinterpret_cast<JpegErrors*>(jpeg->err);
  errors->base.format_message(jpeg, errors->message);
  longjmp(errors->escape, 1);
}

// libjpeg only warns of missing and corrupt data and then makes up pixels. Harmless warnings may pass.
void on_message(j_common_ptr jpeg, int level) {
  if (level >= 0) return;
  const int code = jpeg->err->msg_code;
  if (code == JWRN_EXTRANEOUS_DATA || code == JWRN_JFIF_MAJOR || code == JWRN_ADOBE_XFORM) return;
  on_error(jpeg);
}

void on_output(j_common_ptr) {}

struct JpegHandle {
  JpegHandle() {
    jpeg.err = jpeg_std_error(&errors.base);
    errors.base.error_exit = on_error;
    errors.base.emit_message = on_message;
    errors.base.output_message = on_output;
  }
  ~JpegHandle() { jpeg_destroy_decompress(&jpeg); }
  JpegHandle(const JpegHandle&) = delete;
  JpegHandle& operator=(const JpegHandle&) = delete;

  jpeg_decompress_struct jpeg{};
  JpegErrors errors{};
};

// On an error, libjpeg calls longjmp, which must not skip a destructor. It jumps only into the two functions
// below. They own nothing: decode_jpeg() owns the data that they fill.

bool read_header(JpegHandle* handle, const uint8_t* data, size_t size) {
  if (setjmp(handle->errors.escape) != 0) return false;
  jpeg_create_decompress(&handle->jpeg);
  jpeg_mem_src(&handle->jpeg, data, size);
  jpeg_read_header(&handle->jpeg, TRUE);
  return true;
}

bool read_pixels(JpegHandle* handle, size_t stride, uint8_t* pixels) {
  if (setjmp(handle->errors.escape) != 0) return false;
  jpeg_start_decompress(&handle->jpeg);
  while (handle->jpeg.output_scanline < handle->jpeg.output_height) {
    JSAMPROW row = pixels + handle->jpeg.output_scanline * stride;
    jpeg_read_scanlines(&handle->jpeg, &row, 1);
  }
  jpeg_finish_decompress(&handle->jpeg);
  return true;
}

[[noreturn]] void throw_damaged(const JpegHandle& handle, const std::string& file) {
  throw DataError(file + ": damaged JPEG: " + handle.errors.message);
}

/// Converts pixels of inverted CMYK, where 255 means no ink, to RGB in place. Each ink takes away light that
/// the black ink has left.
void convert_to_rgb(std::vector<uint8_t>& pixels) {
  uint8_t* out = pixels.data();
  for (size_t i = 0; i < pixels.size(); i += 4) {
    const int black = pixels[i + 3];
    for (size_t channel = 0; channel < 3; ++channel) {
      *out++ = static_cast<uint8_t>((pixels[i + channel] * black + 127) / 255);
    }
  }
  pixels.resize(pixels.size() / 4 * 3);
}

}  // namespace

DecodedImage decode_jpeg(std::span<const uint8_t> bytes, const std::string& file,
                         const DecodeLimits& limits) {
  JpegHandle handle;
  jpeg_decompress_struct& jpeg = handle.jpeg;
  if (!read_header(&handle, bytes.data(), bytes.size())) throw_damaged(handle, file);
  if (jpeg.num_components != 1 && jpeg.num_components != 3 && jpeg.num_components != 4) {
    throw DataError(file, "colour components", "1 (grey), 3 or 4 (CMYK)",
                    std::to_string(jpeg.num_components));
  }
  check_dimensions(jpeg.image_height, jpeg.image_width, file, limits);

  DecodedImage image;
  image.height = jpeg.image_height;
  image.width = jpeg.image_width;
  const bool is_cmyk = jpeg.num_components == 4;
  image.channels = is_cmyk ? 3 : jpeg.num_components;
  jpeg.out_color_space = is_cmyk ? JCS_CMYK : image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  const size_t stride = static_cast<size_t>(image.width) * static_cast<size_t>(jpeg.num_components);
  image.pixels.resize(static_cast<size_t>(image.height) * stride);
  if (!read_pixels(&handle, stride, image.pixels.data())) throw_damaged(handle, file);
  // Programs that print write inverted inks, with Adobe's marker or without; other readers assume it, too.
  if (is_cmyk) convert_to_rgb(image.pixels);
  return image;
}

}  // namespace lockstep
