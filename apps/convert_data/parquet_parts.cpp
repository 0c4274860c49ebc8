#include "lockstep/apps/convert_data/parquet_parts.h"

#include <algorithm>
#include <utility>

#include "lockstep/datasets/parquet/internal/row_gatherer.h"

namespace lockstep::apps {

ParquetParts::ParquetParts(ParquetWriterOptions options, int64_t rows_per_file)
    : options_(std::move(options)), stem_(options_.path), rows_per_file_(rows_per_file) {}

void ParquetParts::begin_file() {
  if (rows_per_file_ > 0) {
    std::string number = std::to_string(num_files_++);
    constexpr size_t kDigits = 5;
    number.insert(0, kDigits - std::min(kDigits, number.size()), '0');
    options_.path = stem_ + "-" + number + ".parquet";
  }
  writer_ = std::make_unique<ParquetWriter>(options_);
  rows_in_file_ = 0;
}

void ParquetParts::append(const std::vector<ParquetValues>& rows) {
  const int64_t count = num_rows(rows.front());
  for (int64_t begin = 0; begin < count;) {
    if (writer_ == nullptr) begin_file();
    const int64_t room = rows_per_file_ > 0 ? rows_per_file_ - rows_in_file_ : count;
    const int64_t end = std::min(count, begin + room);
    std::vector<ParquetValues> part;
    for (const ParquetValues& column : rows) part.push_back(slice_rows(column, begin, end));
    writer_->append(part);
    rows_in_file_ += end - begin;
    begin = end;
    if (rows_in_file_ != rows_per_file_) continue;
    writer_->close();
    writer_.reset();
  }
}

void ParquetParts::finish() {
  if (writer_ == nullptr && num_files_ > 0) return;
  if (writer_ == nullptr) begin_file();
  writer_->close();
  writer_.reset();
}

}  // namespace lockstep::apps
