#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include "lockstep/apps/convert_data/click_conversion.h"
#include "lockstep/apps/convert_data/folder_readers.h"
#include "lockstep/apps/convert_data/image_conversion.h"
#include "lockstep/apps/convert_data/parquet_parts.h"
#include "lockstep/datasets/files/data_error.h"
#include "lockstep/runtime/base/internal/utf8_text.h"

namespace lockstep::apps {
namespace {

constexpr size_t kImagesPerBlock = 32;
constexpr int64_t kBytesPerGroup = int64_t{64} << 20;

bool is_utf8_text(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_character_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

/// Returns as many images as have about kBytesPerGroup, judging by some of the files. Small ones are put into
/// several row groups, too, as these are what workers share and threads read.
int64_t images_per_group(const ClassFolder& folder) {
  constexpr size_t kSampled = 256;
  constexpr int64_t kMost = 8192;
  const size_t step = std::max<size_t>(folder.files.size() / kSampled, 1);
  int64_t bytes = 0, count = 0;
  for (size_t i = 0; i < folder.files.size(); i += step, ++count) {
    const ZipEntry& entry = folder.files[i].entry;
    bytes += folder.archive.empty() ? bytes_of_file(entry.name) : static_cast<int64_t>(entry.size);
  }
  return std::clamp(kBytesPerGroup * count / std::max<int64_t>(bytes, 1), int64_t{1}, kMost);
}

/// Fisher and Yates' shuffle, with the same result everywhere.
void shuffle_files(std::vector<ClassFolderFile>& files, uint64_t seed) {
  std::mt19937_64 draw(seed);
  for (size_t i = files.size(); i > 1; --i) std::swap(files[i - 1], files[draw() % i]);
}

/// A column of strings or binaries.
ParquetValues bytes_column(const std::vector<std::string_view>& rows) {
  const auto count = static_cast<int64_t>(rows.size());
  ParquetValues column{.values = {}, .offsets = at::empty({count + 1}, at::kLong)};
  auto* offsets = column.offsets.mutable_data_ptr<int64_t>();
  offsets[0] = 0;
  for (size_t i = 0; i < rows.size(); ++i) offsets[i + 1] = offsets[i] + static_cast<int64_t>(rows[i].size());
  column.values = at::empty({offsets[count]}, at::kByte);
  auto* to = column.values.mutable_data_ptr<uint8_t>();
  for (size_t i = 0; i < rows.size(); ++i) std::copy(rows[i].begin(), rows[i].end(), to + offsets[i]);
  return column;
}

class ImagesToParquet final : public ConversionStream {
 public:
  ImagesToParquet(ImageConversion conversion, ConversionProgress& progress)
      : conversion_(std::move(conversion)),
        progress_(progress),
        parts_({.path = conversion_.out,
                .columns = {column("image"), column("label"), column("name")},
                .rows_per_group = conversion_.rows_per_group > 0 ? conversion_.rows_per_group
                                                                 : images_per_group(conversion_.in),
                .compression = conversion_.compression,
                .text_columns = {"label", "name"}},
               conversion_.rows_per_file) {
    for (const ClassFolderFile& file : conversion_.in.files)
      if (const std::string name = display_name(conversion_.in, file); !is_utf8_text(name))
        throw DataError(printable(name), "name", "UTF-8, as Parquet's texts are", "other bytes");
    if (conversion_.shuffle_seed) shuffle_files(conversion_.in.files, *conversion_.shuffle_seed);
  }

  Convert next() override {
    const size_t begin = next_;
    next_ = std::min(begin + kImagesPerBlock, conversion_.in.files.size());
    if (begin == next_) return {};
    return [this, begin, end = next_] { return read(begin, end); };
  }

  void finish() override { parts_.finish(); }

 private:
  static ParquetColumn column(const std::string& name) {
    return {.name = name, .shape = ParquetShape::kBytes, .length = 0, .type = at::kByte};
  }

  Write read(size_t begin, size_t end) {
    std::vector<std::vector<uint8_t>> contents;
    std::vector<std::string> names;
    std::vector<std::string_view> images, labels, texts;
    readers_.with_reader([&](ClassFolderReader& reader) {
      for (size_t i = begin; i < end; ++i) contents.push_back(reader.read(conversion_.in.files[i]));
    });
    for (size_t i = begin; i < end; ++i) {
      const ClassFolderFile& file = conversion_.in.files[i];
      names.push_back(std::filesystem::path(file.entry.name).filename().string());
      labels.push_back(conversion_.in.classes[static_cast<size_t>(file.label)]);
    }
    for (const auto& bytes : contents)
      images.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    texts.assign(names.begin(), names.end());
    return [this, count = static_cast<int64_t>(end - begin),
            columns = std::vector{bytes_column(images), bytes_column(labels), bytes_column(texts)}] {
      parts_.append(columns);
      progress_.rows += count;
      progress_.done += count;
    };
  }

  ImageConversion conversion_;
  ConversionProgress& progress_;
  ParquetParts parts_;
  size_t next_ = 0;
  FolderReaders readers_{conversion_.in};
};

}  // namespace

std::unique_ptr<ConversionStream> images_to_parquet(ImageConversion conversion,
                                                    ConversionProgress& progress) {
  return std::make_unique<ImagesToParquet>(std::move(conversion), progress);
}

}  // namespace lockstep::apps
