#include "lockstep/datasets/images/internal/webp_decoder.h"

#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>

#include "lockstep/datasets/files/data_error.h"

namespace lockstep {
namespace {

class FirstFrame {
 public:
  explicit FirstFrame(const WebPDemuxer* demuxer) : exists_(WebPDemuxGetFrame(demuxer, 1, &frame_) != 0) {}
  ~FirstFrame() { WebPDemuxReleaseIterator(&frame_); }
  FirstFrame(const FirstFrame&) = delete;
  FirstFrame& operator=(const FirstFrame&) = delete;

  bool exists() const { return exists_; }
  const WebPIterator* operator->() const { return &frame_; }

  bool is_within(const DecodedImage& image) const {
    return frame_.x_offset >= 0 && frame_.y_offset >= 0 && frame_.width > 0 && frame_.height > 0 &&
           int64_t{frame_.x_offset} + frame_.width <= image.width &&
           int64_t{frame_.y_offset} + frame_.height <= image.height;
  }

 private:
  WebPIterator frame_{};
  bool exists_;
};

const char* description_of(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_OUT_OF_MEMORY:
      return "out of memory";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "a feature that libwebp does not support";
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED:
      return "the file ends too early";
    default:
      return "invalid data";
  }
}

/// Decodes the frame into its place in the image, whose pixels are allocated.
VP8StatusCode decode_into(const FirstFrame& frame, DecodedImage& image) {
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0) return VP8_STATUS_INVALID_PARAM;
  const int64_t stride = image.width * image.channels;
  const int64_t offset = frame->y_offset * stride + frame->x_offset * image.channels;
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {.rgba = image.pixels.data() + offset,
                          .stride = static_cast<int>(stride),
                          .size = image.pixels.size() - static_cast<size_t>(offset)};
  const VP8StatusCode status = WebPDecode(frame->fragment.bytes, frame->fragment.size, &config);
  WebPFreeDecBuffer(&config.output);
  return status;
}

[[noreturn]] void throw_damaged(const std::string& file, const std::string& problem) {
  throw DataError(file + ": damaged WebP: " + problem);
}

}  // namespace

DecodedImage decode_webp(std::span<const uint8_t> bytes, const std::string& file,
                         const DecodeLimits& limits) {
  const WebPData data{.bytes = bytes.data(), .size = bytes.size()};
  const std::unique_ptr<WebPDemuxer, void (*)(WebPDemuxer*)> demuxer(WebPDemux(&data), WebPDemuxDelete);
  if (demuxer == nullptr) throw_damaged(file, "an invalid header, or the file ends too early");

  DecodedImage image;
  image.height = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT);
  image.width = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH);
  image.channels = 3;
  const auto height = static_cast<uint64_t>(image.height);
  const auto width = static_cast<uint64_t>(image.width);
  check_dimensions(height, width, file, limits);
  const FirstFrame frame(demuxer.get());
  if (!frame.exists()) throw_damaged(file, "it has no image");
  if (!frame.is_within(image)) throw_damaged(file, "its first frame exceeds the image");

  image.pixels.resize(height * width * static_cast<size_t>(image.channels));
  const VP8StatusCode status = decode_into(frame, image);
  if (status != VP8_STATUS_OK) throw_damaged(file, description_of(status));
  return image;
}

}  // namespace lockstep
