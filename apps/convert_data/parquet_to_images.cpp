#include <algorithm>
#include <utility>

#include "lockstep/apps/convert_data/click_conversion.h"
#include "lockstep/apps/convert_data/image_conversion.h"
#include "lockstep/datasets/clicks/internal/quoted_field.h"
#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/images/internal/image_names.h"

namespace lockstep::apps {
namespace {

constexpr size_t kImageColumn = 0;
constexpr size_t kLabelColumn = 1;
constexpr size_t kNameColumn = 2;

std::string_view bytes_of_row(const ParquetValues& column, int64_t row) {
  const auto* offsets = column.offsets.const_data_ptr<int64_t>();
  return {reinterpret_cast<const char*>(column.values.const_data_ptr<uint8_t>()) + offsets[row],
          static_cast<size_t>(offsets[row + 1] - offsets[row])};
}

/// Returns whether a file or folder of this name is one that class folders show: directly in its folder.
bool is_plain_name(std::string_view name) {
  constexpr size_t kLongestName = 255;
  return !name.empty() && name.size() <= kLongestName && !is_hidden(name) &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

/// Returns the ending of a file with these bytes.
std::string ending_of(std::string_view image) {
  if (image.starts_with("\x89PNG")) return ".png";
  if (image.starts_with("\xff\xd8\xff")) return ".jpg";
  if (image.starts_with("RIFF") && image.substr(std::min<size_t>(8, image.size())).starts_with("WEBP"))
    return ".webp";
  return "";
}

/// Opens a file with the columns image, label and perhaps name. Other columns may be of any type.
std::shared_ptr<const ParquetFile> open_image_file(const std::string& path) {
  std::vector<std::string> names{"image", "label", "name"};
  try {
    return std::make_shared<const ParquetFile>(ParquetFileOptions{.path = path, .columns = names});
  } catch (const DataError&) {
    names.pop_back();
    return std::make_shared<const ParquetFile>(ParquetFileOptions{.path = path, .columns = names});
  }
}

void check_image_types(const ParquetFile& file) {
  const auto& columns = file.columns();
  const auto refuse = [&](size_t column, const std::string& expected) {
    throw DataError(file.path() + ": column '" + columns[column].name + "': expected " + expected +
                    ", but got another type");
  };
  const ParquetColumn& label = columns[kLabelColumn];
  const bool is_integer = label.shape == ParquetShape::kNumber && label.type != at::kBool &&
                          !at::isFloatingType(label.type) && label.unit.empty();
  if (columns[kImageColumn].shape != ParquetShape::kBytes) refuse(kImageColumn, "binaries");
  if (label.shape != ParquetShape::kBytes && !is_integer) refuse(kLabelColumn, "strings or integers");
  if (columns.size() > kNameColumn && columns[kNameColumn].shape != ParquetShape::kBytes)
    refuse(kNameColumn, "strings");
}

class ParquetToImages final : public ConversionStream {
 public:
  ParquetToImages(std::vector<std::string> files, std::unique_ptr<ImageSink> sink,
                  ConversionProgress& progress)
      : files_(std::move(files)), sink_(std::move(sink)), progress_(progress) {}

  Convert next() override {
    for (; next_file_ < files_.size(); ++next_file_, file_.reset(), row_group_ = 0) {
      if (file_ == nullptr) {
        file_ = open_image_file(files_[next_file_]);
        check_image_types(*file_);
      }
      if (row_group_ == file_->num_row_groups()) continue;
      const int64_t bytes = bytes_of_file(files_[next_file_]) / file_->num_row_groups();
      const int64_t first = num_rows_;
      num_rows_ += file_->num_rows(row_group_);
      return [this, file = file_, group = row_group_++, first, bytes] {
        return convert(*file, group, first, bytes);
      };
    }
    return {};
  }

  void finish() override { sink_->finish(); }

 private:
  Write convert(const ParquetFile& file, int group, int64_t first, int64_t bytes) {
    auto values = std::make_shared<const std::vector<ParquetValues>>(file.read_row_group(group));
    const auto write = [this, path = file.path(), group, first, values, rows = file.num_rows(group)] {
      for (int64_t row = 0; row < rows; ++row) write_image(path, group, row, first + row, *values);
    };
    if (sink_->is_parallel()) write();
    return [this, write, rows = file.num_rows(group), bytes] {
      if (!sink_->is_parallel()) write();
      progress_.rows += rows;
      progress_.done += bytes;
    };
  }

  void write_image(const std::string& path, int group, int64_t row, int64_t number,
                   const std::vector<ParquetValues>& values) {
    const std::string place = path + ": row group " + std::to_string(group) + ": row " + std::to_string(row);
    const std::string_view image = bytes_of_row(values[kImageColumn], row);
    const ParquetValues& labels = values[kLabelColumn];
    const std::string label = labels.offsets.defined() ? std::string(bytes_of_row(labels, row))
                                                       : std::to_string(labels.values[row].item<int64_t>());
    if (!is_plain_name(label))
      throw DataError(place, "column 'label'", "a name that a folder may have", quoted_field(label));
    std::string name;
    if (values.size() > kNameColumn) {
      name = bytes_of_row(values[kNameColumn], row);
      if (!is_plain_name(name) || !has_image_extension(name))
        throw DataError(place, "column 'name'", std::string("a file's name that ends in ") + kImageExtensions,
                        quoted_field(name));
    } else {
      const std::string ending = ending_of(image);
      if (ending.empty()) throw DataError(place, "column 'image'", "a PNG, JPEG or WebP file", "other bytes");
      constexpr size_t kDigits = 9;
      name = std::to_string(number);
      name.insert(0, kDigits - std::min(kDigits, name.size()), '0');
      name += ending;
    }
    try {
      sink_->write({.name = label + "/" + name, .bytes = image.data(), .size = image.size()});
    } catch (const DataError& error) {
      throw DataError(place + ": " + error.what());
    }
  }

  std::vector<std::string> files_;
  std::unique_ptr<ImageSink> sink_;
  ConversionProgress& progress_;
  size_t next_file_ = 0;
  std::shared_ptr<const ParquetFile> file_;
  int row_group_ = 0;
  int64_t num_rows_ = 0;
};

}  // namespace

bool has_image_columns(const std::string& path) {
  try {
    open_image_file(path);
    return true;
  } catch (const DataError&) {
    // Its columns are others, or it cannot be read, which opening it as a click log says.
    return false;
  }
}

std::unique_ptr<ConversionStream> parquet_to_images(std::vector<std::string> files,
                                                    std::unique_ptr<ImageSink> sink,
                                                    ConversionProgress& progress) {
  return std::make_unique<ParquetToImages>(std::move(files), std::move(sink), progress);
}

}  // namespace lockstep::apps
