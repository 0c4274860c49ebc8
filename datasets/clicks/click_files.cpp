#include "lockstep/datasets/clicks/click_files.h"

#include <algorithm>

#include "lockstep/datasets/files/internal/data_checksum.h"
#include "lockstep/datasets/files/internal/find_files.h"
#include "lockstep/datasets/tensors/tensor_dataset.h"

namespace lockstep {

ClickFiles::ClickFiles(const ClickFilesOptions& options) : paths_(find_data_files(options.paths)) {
  for (const auto& path : paths_) {
    files_.emplace_back(ClickFileOptions{.path = path,
                                         .skips_malformed = options.skips_malformed,
                                         .index_folder = options.index_folder,
                                         .save_index_from_bytes = options.save_index_from_bytes,
                                         .on_message = options.on_message});
    firsts_.push_back(firsts_.back() + *files_.back().size());
  }
}

ClickBatch ClickFiles::get_batch(c10::ArrayRef<size_t> indices) const {
  check_indices(indices, firsts_.back(), "ClickFiles");
  std::vector<ClickRow> rows;
  rows.reserve(indices.size());
  for (size_t i = 0; i < indices.size();) {
    const auto next = std::upper_bound(firsts_.begin(), firsts_.end(), indices[i]);
    const auto file = static_cast<size_t>(next - firsts_.begin()) - 1;
    size_t count = 1;
    while (i + count < indices.size() && indices[i + count] == indices[i] + count &&
           indices[i + count] < *next)
      ++count;
    files_[file].read_rows(indices[i] - firsts_[file], count, rows);
    i += count;
  }
  return click_batch(rows);
}

std::string ClickFiles::identity() const {
  constexpr size_t kMostRows = 256;
  const size_t count = std::min(firsts_.back(), kMostRows);
  std::vector<size_t> sampled;
  for (size_t i = 0; i < count; ++i) sampled.push_back(i * firsts_.back() / count);
  const ClickBatch rows = get_batch(sampled);
  DataChecksum checksum;
  // Not the numbers: their logarithms may differ in the last bit between machines.
  for (const auto& tensor : {std::get<1>(rows.data), rows.target})
    checksum.add(tensor.const_data_ptr(), tensor.nbytes());
  return "click logs of " + std::to_string(firsts_.back()) + " rows (checksum " + checksum.text() + ")";
}

int64_t ClickFiles::num_malformed() const {
  int64_t count = 0;
  for (const auto& file : files_) count += file.num_malformed();
  return count;
}

std::string ClickFiles::first_malformed() const {
  for (size_t i = 0; i < files_.size(); ++i) {
    if (files_[i].num_malformed() > 0) return paths_[i] + ": " + files_[i].first_malformed();
  }
  return "";
}

}  // namespace lockstep
