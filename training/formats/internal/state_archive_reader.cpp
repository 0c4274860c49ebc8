#include "lockstep/training/formats/internal/state_archive_reader.h"

#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>
#include <zlib.h>

#include <bit>
#include <stdexcept>

#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/base/internal/text_excerpt.h"
#include "lockstep/training/formats/internal/pickle_reader.h"
#include "lockstep/training/formats/internal/tensor_dtypes.h"
#include "lockstep/training/formats/internal/tensor_size.h"

namespace lockstep {
namespace {

// Tensors are copied between memory and file byte by byte.
static_assert(std::endian::native == std::endian::little);

/// Returns one past the last element, or a number that no storage reaches.
uint64_t end_of(const PickledTensor& tensor) {
  constexpr auto kNever = static_cast<uint64_t>(-1);
  uint64_t end = static_cast<uint64_t>(tensor.offset);
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] == 0) return static_cast<uint64_t>(tensor.offset);
    uint64_t span = 0;
    if (__builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i], &span) ||
        __builtin_add_overflow(end, span, &end))
      return kNever;
  }
  return end + 1;
}

torch::ScalarType dtype_of_pickled(const std::string& name) {
  for (const auto& [candidate, dtype] : kDtypesByName)
    if (name == candidate) return dtype;
  throw std::logic_error("a dtype that find_pickled_dtype() knows is missing here: " + name);
}

}  // namespace

StateArchiveReader::StateArchiveReader(const InputFile& file)
    : file_(file), records_(read_zip_directory(file)) {
  for (const auto& [name, record] : records_) {
    const size_t slash = name.find('/');
    if (slash != std::string::npos && name.substr(slash) == "/data.pkl") folder_ = name.substr(0, slash + 1);
  }
  if (folder_.empty()) throw CheckpointError(file_.path(), "archive", "a record data.pkl", "none");
  if (records_.contains(folder_ + "constants.pkl")) {
    throw CheckpointError(file_.path(), "archive", "what Lockstep or Python's torch.save() wrote",
                          "a TorchScript archive, of torch::save() or torch.jit.save()");
  }
}

StateValue StateArchiveReader::read(uint64_t most_bytes) {
  const auto order = records_.find(folder_ + "byteorder");
  if (order != records_.end()) {
    const std::string text = read_text("byteorder", 16);
    if (text != kStateByteOrder)
      throw CheckpointError(file_.path(), "byteorder", kStateByteOrder, quoted_excerpt(text));
  }
  const PickleValue value = read_pickle(read_text("data.pkl", kMaxPickleBytes), file_.path());
  return map_tensors<torch::Tensor>(value,
                                    [&](const PickledTensor& tensor) { return make(tensor, most_bytes); });
}

torch::Tensor StateArchiveReader::read_rows(const torch::Tensor& tensor, int64_t begin, int64_t end) const {
  if (!tensor.is_meta()) return tensor.narrow(0, begin, end - begin);
  const auto place = places_.find(tensor.unsafeGetTensorImpl());
  TORCH_CHECK(
      place != places_.end() && tensor.dim() > 0 && begin >= 0 && begin <= end && end <= tensor.size(0),
      "rows of another tensor");
  auto sizes = tensor.sizes().vec();
  sizes[0] = end - begin;
  auto rows = at::empty(sizes, tensor.options().device(torch::kCPU));
  if (rows.numel() == 0) return rows;
  const auto row_bytes = static_cast<uint64_t>(tensor.stride(0)) * tensor.itemsize();
  file_.read(place->second + static_cast<uint64_t>(begin) * row_bytes, rows.mutable_data_ptr(),
             rows.nbytes());
  return rows;
}

const ZipRecord& StateArchiveReader::find(const std::string& name) const {
  const auto found = records_.find(folder_ + name);
  if (found == records_.end())
    throw CheckpointError(file_.path(), "archive", "a record " + quoted_excerpt(name), "none");
  return found->second;
}

/// Returns the record of a tensor's storage, which has the bytes that the tensor needs.
const ZipRecord& StateArchiveReader::find_storage(const PickledTensor& tensor) const {
  const ZipRecord& record = find("data/" + tensor.storage);
  const std::string part = "record " + quoted_excerpt("data/" + tensor.storage);
  if (tensor.storage_bytes != record.size) {
    throw CheckpointError(file_.path(), part, std::to_string(tensor.storage_bytes) + " bytes",
                          std::to_string(record.size));
  }
  const auto size = find_pickled_dtype(tensor.dtype)->element_size;
  const auto elements = checked_tensor_bytes(tensor.shape, 1);
  const bool fits = tensor.shape.size() <= kMaxTensorDimensions && elements &&
                    *elements <= tensor.storage_bytes / size && end_of(tensor) <= tensor.storage_bytes / size;
  if (!fits) {
    throw CheckpointError(file_.path(), part,
                          "a tensor within its " + std::to_string(tensor.storage_bytes) + " bytes",
                          c10::str(tensor.dtype, " ", at::IntArrayRef(tensor.shape), " with strides ",
                                   at::IntArrayRef(tensor.strides), " from element ", tensor.offset));
  }
  return record;
}

void StateArchiveReader::check_plain(const std::string& name, const ZipRecord& record) const {
  if (record.is_plain) return;
  throw CheckpointError(file_.path(), "record " + quoted_excerpt(name), "plain bytes",
                        "compressed or encrypted ones");
}

void StateArchiveReader::read_record(const std::string& name, const ZipRecord& record, void* bytes) const {
  check_plain(name, record);
  file_.read(record.begin, bytes, record.size);
  if (record.crc32 != 0 && crc32_z(0, static_cast<const Bytef*>(bytes), record.size) != record.crc32) {
    throw CheckpointError(file_.path(), "record " + quoted_excerpt(name), "bytes with their checksum",
                          "others: the file is damaged");
  }
}

std::string StateArchiveReader::read_text(const std::string& name, size_t limit) const {
  const ZipRecord& record = find(name);
  if (record.size > limit) {
    throw CheckpointError(file_.path(), "record " + quoted_excerpt(name),
                          "at most " + std::to_string(limit) + " bytes", std::to_string(record.size));
  }
  std::string text(record.size, '\0');
  read_record(name, record, text.data());
  return text;
}

/// Returns all bytes of a record, which is read only once.
const torch::Tensor& StateArchiveReader::storage_of(const PickledTensor& tensor, const ZipRecord& record) {
  const auto known = storages_.find(tensor.storage);
  if (known != storages_.end()) return known->second;
  auto bytes = at::empty({static_cast<int64_t>(record.size)}, torch::kUInt8);
  read_record("data/" + tensor.storage, record, bytes.mutable_data_ptr());
  return storages_.emplace(tensor.storage, std::move(bytes)).first->second;
}

torch::Tensor StateArchiveReader::make(const PickledTensor& tensor, uint64_t most_bytes) {
  const ZipRecord& record = find_storage(tensor);
  const auto dtype = dtype_of_pickled(tensor.dtype);
  if (record.size > most_bytes) {
    auto unread = at::empty(tensor.shape, at::TensorOptions(dtype).device(torch::kMeta));
    if (unread.nbytes() > most_bytes && unread.strides() == at::IntArrayRef(tensor.strides)) {
      check_plain("data/" + tensor.storage, record);
      places_[unread.unsafeGetTensorImpl()] =
          record.begin + static_cast<uint64_t>(tensor.offset) * unread.itemsize();
      unread_.push_back(unread);
      return unread;
    }
  }
  auto result = at::empty({0}, dtype);
  result.set_(storage_of(tensor, record).storage(), tensor.offset, tensor.shape, tensor.strides);
  return result;
}

}  // namespace lockstep
