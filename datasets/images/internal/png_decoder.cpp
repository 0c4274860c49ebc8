#include "lockstep/datasets/images/internal/png_decoder.h"

#include <png.h>

#include <cstdio>
#include <cstring>
#include <new>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/deflate_ratio.h"

namespace lockstep {
namespace {

struct PngInput {
  const uint8_t* next;
  size_t left;
  bool ends_early;  // whether more was needed than is there
  char error[160];
  char warning[160];
};

[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  auto* input = static_cast<PngInput*>(png_get_error_ptr(png));
  std::snprintf(input->error, sizeof(input->error), "%s", message);
  png_longjmp(png, 1);
}

// libpng explains "Invalid IHDR data" in a warning that comes before: "Image width is zero in IHDR".
void on_warning(png_structp png, png_const_charp message) {
  auto* input = static_cast<PngInput*>(png_get_error_ptr(png));
  std::snprintf(input->warning, sizeof(input->warning), "%s", message);
}

void on_read(png_structp png, png_bytep out, size_t count) {
  auto* input = static_cast<PngInput*>(png_get_io_ptr(png));
  if (count > input->left) {
    input->ends_early = true;
    png_error(png, "the file ends too early");
  }
  std::memcpy(out, input->next, count);
  input->next += count;
  input->left -= count;
}

class PngHandle {
 public:
  explicit PngHandle(PngInput* input)
      : png_(png_create_read_struct(PNG_LIBPNG_VER_STRING, input, on_error, on_warning)),
        info_(png_ != nullptr ? png_create_info_struct(png_) : nullptr) {
    if (info_ == nullptr) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      throw std::bad_alloc();
    }
    png_set_read_fn(png_, input, on_read);
  }
  ~PngHandle() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngHandle(const PngHandle&) = delete;
  PngHandle& operator=(const PngHandle&) = delete;

  png_structp png() const { return png_; }
  png_infop info() const { return info_; }

 private:
  png_structp png_;
  png_infop info_;
};

// On an error, libpng calls longjmp, which must not skip a destructor. It jumps only into the three
// functions below. They own nothing: decode_png() owns the data that they fill.

bool read_header(png_structp png, png_infop info) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_set_crc_action(png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
  // Texts and profiles may be decompression bombs, and nothing here reads them.
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  // The caller checks limits, with an error that names the dimensions.
  png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
  png_read_info(png, info);
  return true;
}

bool read_pixels(png_structp png, png_infop info, size_t stride, uint8_t* pixels) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_set_scale_16(png);
  png_set_packing(png);
  if (png_get_color_type(png, info) == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if (png_get_color_type(png, info) == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(png);
  png_set_strip_alpha(png);
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, info);
  if (png_get_rowbytes(png, info) != stride) png_error(png, "rows of an unexpected size");

  const uint32_t height = png_get_image_height(png, info);
  for (int pass = 0; pass < passes; ++pass) {
    for (uint32_t row = 0; row < height; ++row) png_read_row(png, pixels + row * stride, nullptr);
  }
  return true;
}

/// Reads the chunks after the image data, which libpng checks as it skips them.
bool read_end(png_structp png) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_read_end(png, nullptr);
  return true;
}

[[noreturn]] void throw_damaged(const PngInput& input, const std::string& file) {
  std::string message = file + ": damaged PNG: " + input.error;
  if (input.warning[0] != '\0') message += std::string(" (") + input.warning + ")";
  throw DataError(message);
}

void check_inflated_size(uint64_t file_bytes, uint64_t pixel_bytes, const std::string& file) {
  if (pixel_bytes / kMaxDeflateRatio > file_bytes) {
    throw DataError(file, "dimensions",
                    "at most the " + std::to_string(file_bytes * kMaxDeflateRatio) +
                        " bytes that its length can inflate to",
                    std::to_string(pixel_bytes) + " bytes");
  }
}

}  // namespace

DecodedImage decode_png(std::span<const uint8_t> bytes, const std::string& file, const DecodeLimits& limits) {
  PngInput input{.next = bytes.data(), .left = bytes.size(), .ends_early = false, .error = {}, .warning = {}};
  const PngHandle handle(&input);
  if (!read_header(handle.png(), handle.info())) throw_damaged(input, file);

  DecodedImage image;
  image.height = png_get_image_height(handle.png(), handle.info());
  image.width = png_get_image_width(handle.png(), handle.info());
  const bool is_colour = (png_get_color_type(handle.png(), handle.info()) & PNG_COLOR_MASK_COLOR) != 0;
  image.channels = is_colour ? 3 : 1;
  const auto height = static_cast<uint64_t>(image.height);
  const auto width = static_cast<uint64_t>(image.width);
  check_dimensions(height, width, file, limits);
  check_inflated_size(bytes.size(), height * png_get_rowbytes(handle.png(), handle.info()), file);

  const size_t stride = width * static_cast<size_t>(image.channels);
  image.pixels.resize(height * stride);
  if (!read_pixels(handle.png(), handle.info(), stride, image.pixels.data())) throw_damaged(input, file);
  // Some programs write no end chunk. The image data is complete, and its checksum was right.
  if (!read_end(handle.png()) && !input.ends_early) throw_damaged(input, file);
  return image;
}

}  // namespace lockstep
