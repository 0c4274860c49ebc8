#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/apps/convert_data/conversion_stream.h"
#include "lockstep/datasets/images/internal/class_folder.h"
#include "lockstep/datasets/parquet/parquet_file.h"

namespace lockstep::apps {

struct ImageConversion {
  ClassFolder in;
  std::string out;  ///< See ParquetParts for its meaning with rows_per_file
  int64_t rows_per_file = 0;
  int64_t rows_per_group = 0;  ///< 0: as many images as have about 64 MiB, up to 8192
  std::string compression = "zstd";
  std::optional<uint64_t> shuffle_seed = {};
};

/// The files of a class folder to Parquet, with the columns `image` (the bytes of a file), `label` (the name
/// of its class) and `name` (of the file). The stream counts images as done. Throws DataError naming an image
/// that cannot be read, or whose name is not UTF-8.
std::unique_ptr<ConversionStream> images_to_parquet(ImageConversion conversion, ConversionProgress& progress);

/// Receives images, each once.
class ImageSink {
 public:
  struct Image {
    std::string name;  ///< relative, such as cat/1.png
    const void* bytes = nullptr;
    size_t size = 0;
  };

  virtual ~ImageSink() = default;
  /// Returns whether several threads may call write() at the same time, in any order.
  virtual bool is_parallel() const = 0;
  /// Throws DataError if an image has this name already, and std::system_error if it cannot be written.
  virtual void write(const Image& image) = 0;
  /// Called once after the last image.
  virtual void finish() {}
};

/// Writes images as files in a folder, which must be empty.
std::unique_ptr<ImageSink> image_folder_sink(const std::string& folder);
/// Writes images as a zip archive, which gets its name when it is complete.
std::unique_ptr<ImageSink> image_zip_sink(const std::string& path);

/// Returns whether a Parquet file has the columns of images, and no click log's. Throws as ParquetFile.
bool has_image_columns(const std::string& path);

/// The images of Parquet files with a column `image` of binaries, and a column `label` of class names or
/// integers. A column `name` has the files' names; without it, they are numbered. The stream counts the
/// files' bytes as done. Throws DataError naming the file, the row group and the row of an image that has no
/// name or class that a file or folder could have, or those of another one.
std::unique_ptr<ConversionStream> parquet_to_images(std::vector<std::string> files,
                                                    std::unique_ptr<ImageSink> sink,
                                                    ConversionProgress& progress);

}  // namespace lockstep::apps
