#pragma once

#include <torch/types.h>

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "lockstep/runtime/base/files/internal/input_file.h"
#include "lockstep/runtime/base/files/internal/zip_directory.h"
#include "lockstep/training/formats/internal/pickle_value.h"
#include "lockstep/training/formats/state_file.h"

namespace lockstep {

/// Reads the content of a state file; see load_state_file(), also for the errors. Large tensors can be read
/// in pieces. `file` must outlive the reader.
class StateArchiveReader {
 public:
  /// Reads the directory.
  explicit StateArchiveReader(const InputFile& file);

  /// Reads the state. Contiguous tensors of more than `most_bytes` bytes are not read: they are of the device
  /// "meta", for read_rows(). Call it once.
  StateValue read(uint64_t most_bytes = std::numeric_limits<uint64_t>::max());
  /// Reads rows `begin` to `end` - 1 of a tensor that read() returned. Does not check the archive's checksum
  /// of a tensor of the device "meta", because that covers the whole tensor.
  torch::Tensor read_rows(const torch::Tensor& tensor, int64_t begin, int64_t end) const;

 private:
  const ZipRecord& find(const std::string& name) const;
  const ZipRecord& find_storage(const PickledTensor& tensor) const;
  void check_plain(const std::string& name, const ZipRecord& record) const;
  void read_record(const std::string& name, const ZipRecord& record, void* bytes) const;
  std::string read_text(const std::string& name, size_t limit) const;
  const torch::Tensor& storage_of(const PickledTensor& tensor, const ZipRecord& record);
  torch::Tensor make(const PickledTensor& tensor, uint64_t most_bytes);

  const InputFile& file_;
  const std::map<std::string, ZipRecord> records_;
  std::string folder_;
  std::map<std::string, torch::Tensor> storages_;
  std::map<const c10::TensorImpl*, uint64_t> places_;  // in the file, of the tensors that were not read
  std::vector<torch::Tensor> unread_;                  // so that no address is reused
};

}  // namespace lockstep
