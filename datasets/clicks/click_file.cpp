#include "lockstep/datasets/clicks/click_file.h"

#include <stdexcept>

#include "lockstep/datasets/clicks/internal/indexed_rows.h"
#include "lockstep/datasets/tensors/tensor_dataset.h"

namespace lockstep {

ClickFile::ClickFile(const ClickFileOptions& options) : rows_(std::make_shared<const IndexedRows>(options)) {}

std::optional<size_t> ClickFile::size() const {
  return rows_->size();
}

int64_t ClickFile::num_malformed() const {
  return rows_->facts().num_malformed;
}

const std::string& ClickFile::first_malformed() const {
  return rows_->facts().first_malformed;
}

ClickBatch ClickFile::get_batch(c10::ArrayRef<size_t> indices) const {
  check_indices(indices, rows_->size(), "ClickFile");
  std::vector<ClickRow> rows;
  rows.reserve(indices.size());
  for (size_t i = 0; i < indices.size();) {
    size_t count = 1;
    while (i + count < indices.size() && indices[i + count] == indices[i] + count) ++count;
    rows_->read(indices[i], count, rows);
    i += count;
  }
  return click_batch(rows);
}

void ClickFile::read_rows(size_t first, size_t count, std::vector<ClickRow>& rows) const {
  if (first > rows_->size() || count > rows_->size() - first)
    throw std::invalid_argument("[ClickFile] expected rows below " + std::to_string(rows_->size()) +
                                ", but got " + std::to_string(count) + " from " + std::to_string(first) +
                                " on");
  rows_->read(first, count, rows);
}

}  // namespace lockstep
