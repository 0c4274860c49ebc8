#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "lockstep/apps/convert_data/click_conversion.h"
#include "lockstep/apps/convert_data/click_lines.h"
#include "lockstep/apps/convert_data/parquet_parts.h"
#include "lockstep/datasets/clicks/parquet_clicks.h"
#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/find_files.h"
#include "lockstep/datasets/images/internal/image_names.h"

namespace lockstep::apps {
namespace {

/// Small enough that the blocks of all threads need little memory.
constexpr int64_t kLinesPerBlock = 16'384;

class ClicksToParquet final : public ConversionStream {
 public:
  ClicksToParquet(ClickConversion conversion, ClickNotes& notes, ConversionProgress& progress)
      : conversion_(std::move(conversion)),
        notes_(notes),
        progress_(progress),
        parts_({.path = conversion_.out,
                .columns = click_columns(),
                .rows_per_group = conversion_.rows_per_group,
                .compression = conversion_.compression,
                .null_value = kMissingClickValue},
               conversion_.rows_per_file) {}

  Convert next() override {
    while (file_ < conversion_.in.size()) {
      const std::string& file = conversion_.in[file_];
      if (reader_ == nullptr) reader_ = std::make_unique<LineReader>(file);
      auto block = std::make_shared<const LineBlock>(
          reader_->next(std::min(kLinesPerBlock, conversion_.rows_per_group)));
      if (block->num_lines > 0) return [this, &file, block] { return convert(file, *block); };
      reader_.reset();
      ++file_;
    }
    return {};
  }

  void finish() override {
    if (num_rows_ == 0)
      throw DataError(conversion_.in.front() + ": expected rows of click logs, but it has none");
    parts_.finish();
    int64_t bytes = 0;
    for (const std::string& file : conversion_.in) bytes += bytes_of_file(file);
    progress_.done += bytes - bytes_done_;
  }

 private:
  Write convert(const std::string& file, const LineBlock& block) {
    auto parsed = std::make_shared<ParsedLines>(parse_click_lines(file, block, conversion_.skips_bad));
    auto values = click_values(parsed->rows);
    const auto rows = static_cast<int64_t>(parsed->rows.size());
    parsed->rows = {};
    return [this, &file, parsed, values = std::move(values), rows, bytes = block.text.size()] {
      write(file, *parsed, values, rows, static_cast<int64_t>(bytes));
    };
  }

  void write(const std::string& file, const ParsedLines& parsed, const std::vector<ParquetValues>& values,
             int64_t rows, int64_t bytes) {
    if (rows > 0) parts_.append(values);
    num_rows_ += rows;
    ClickNotes notes{.num_malformed = parsed.num_malformed, .num_respelled = parsed.num_respelled};
    if (parsed.num_malformed > 0) notes.first_malformed = file + ": " + parsed.first_malformed;
    if (parsed.num_respelled > 0)
      notes.first_respelled = file + ": line " + std::to_string(parsed.first_respelled);
    notes_.add(notes);
    progress_.rows += rows;
    if (is_compressed_) return;
    bytes_done_ += bytes;
    progress_.done += bytes;
  }

  ClickConversion conversion_;
  ClickNotes& notes_;
  ConversionProgress& progress_;
  ParquetParts parts_;
  // Bytes of compressed files count when they have been read.
  bool is_compressed_ =
      std::any_of(conversion_.in.begin(), conversion_.in.end(),
                  [](const std::string& file) { return compression_of(file) != Compression::kNone; });
  size_t file_ = 0;
  std::unique_ptr<LineReader> reader_;
  int64_t num_rows_ = 0;
  int64_t bytes_done_ = 0;
};

}  // namespace

void ClickNotes::add(const ClickNotes& other) {
  if (num_malformed == 0) first_malformed = other.first_malformed;
  if (num_respelled == 0) first_respelled = other.first_respelled;
  num_malformed += other.num_malformed;
  num_respelled += other.num_respelled;
}

std::vector<std::string> find_click_files(const std::vector<std::string>& places) {
  std::vector<std::string> files = find_data_files(places);
  for (const std::string& file : files)
    if (has_image_extension(file))
      throw DataError(file +
                      ": expected a click log, but it is named as an image; name the folder of the "
                      "images' class folders instead, as in <folder>/<class>/<name>.png");
  return files;
}

int64_t bytes_of_file(const std::string& path) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(bytes);
}

std::unique_ptr<ConversionStream> clicks_to_parquet(const ClickConversion& conversion, ClickNotes& notes,
                                                    ConversionProgress& progress) {
  return std::make_unique<ClicksToParquet>(conversion, notes, progress);
}

}  // namespace lockstep::apps
