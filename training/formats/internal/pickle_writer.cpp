#include "lockstep/training/formats/internal/pickle_writer.h"

#include <bit>
#include <limits>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/training/formats/internal/pickle_opcodes.h"

namespace lockstep {
namespace {

using namespace pickle;  // NOLINT: opcodes, of which every line has one

class PickleWriter {
 public:
  std::string write(const PickleValue& value) {
    bytes_ = {kProto, kProtocol};
    put(value, 0);
    bytes_ += kStop;
    return std::move(bytes_);
  }

 private:
  void put(const PickleValue& value, size_t depth) {
    if (++num_values_ > kMaxPickledValues) {
      throw InvalidArgument("[write_pickle] expected at most " + std::to_string(kMaxPickledValues) +
                            " values, but got more; put long lists of numbers into tensors");
    }
    if (depth == kMaxNesting) {
      throw InvalidArgument("[write_pickle] expected values at most " + std::to_string(kMaxNesting) +
                            " deep inside each other, but got deeper ones");
    }
    std::visit([&](const auto& data) { put_data(data, depth); }, value.data());
  }

  void put_data(const std::monostate&, size_t) { bytes_ += kNone; }
  void put_data(bool value, size_t) { bytes_ += value ? kNewTrue : kNewFalse; }
  void put_data(int64_t value, size_t) { put_integer(value); }
  void put_data(const std::string& text, size_t) { put_text(text); }

  void put_data(double value, size_t) {
    bytes_ += kBinFloat;
    const auto bits = std::bit_cast<uint64_t>(value);
    for (int shift = 56; shift >= 0; shift -= 8) bytes_ += static_cast<char>(bits >> shift);
  }

  void put_data(const PickleValue::List& list, size_t depth) {
    bytes_ += kEmptyList;
    bytes_ += kMark;
    for (const auto& item : list) put(item, depth + 1);
    bytes_ += kAppends;
  }

  void put_data(const PickleValue::Tuple& tuple, size_t depth) {
    bytes_ += kMark;
    for (const auto& item : tuple.items) put(item, depth + 1);
    bytes_ += kTuple;
  }

  void put_data(const PickleValue::Dict& dict, size_t depth) {
    bytes_ += kEmptyDict;
    bytes_ += kMark;
    for (const auto& entry : dict.entries) {
      if (const auto* text = std::get_if<std::string>(&entry.key)) {
        put_text(*text);
      } else {
        put_integer(std::get<int64_t>(entry.key));
      }
      put(entry.value, depth + 1);
    }
    bytes_ += kSetItems;
  }

  /// Writes a call of Python's torch._utils._rebuild_tensor_v2 or, for dtypes without a storage class, _v3.
  void put_data(const PickledTensor& tensor, size_t) {
    const PickledDtype* dtype = find_pickled_dtype(tensor.dtype);
    if (dtype == nullptr)
      throw InvalidArgument("[write_pickle] expected a dtype that Python has, but got " + tensor.dtype);
    const bool is_typed = !dtype->storage.empty();
    put_global("torch._utils", is_typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    bytes_ += kMark;
    bytes_ += kMark;
    put_text("storage");
    if (is_typed) {
      put_global("torch", dtype->storage);
    } else {
      put_global("torch.storage", "UntypedStorage");
    }
    put_text(tensor.storage);
    put_text("cpu");
    put_integer(static_cast<int64_t>(tensor.storage_bytes / (is_typed ? dtype->element_size : 1)));
    bytes_ += kTuple;
    bytes_ += kBinPersistentId;
    put_integer(tensor.offset);
    put_sizes(tensor.shape);
    put_sizes(tensor.strides);
    bytes_ += kNewFalse;  // requires_grad
    put_global("collections", "OrderedDict");
    bytes_ += kEmptyTuple;
    bytes_ += kReduce;  // no hooks
    if (!is_typed) put_global("torch", dtype->name);
    bytes_ += kTuple;
    bytes_ += kReduce;
  }

  void put_sizes(const std::vector<int64_t>& sizes) {
    bytes_ += kMark;
    for (const int64_t size : sizes) put_integer(size);
    bytes_ += kTuple;
  }

  void put_integer(int64_t value) {
    const bool is_short =
        value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max();
    bytes_ += is_short ? kBinInt : kLong1;
    if (!is_short) bytes_ += static_cast<char>(sizeof value);
    put_little_endian(static_cast<uint64_t>(value), is_short ? sizeof(int32_t) : sizeof value);
  }

  void put_text(std::string_view text) {
    if (text.size() > std::numeric_limits<uint32_t>::max())
      throw InvalidArgument("[write_pickle] expected a string of less than 4 GiB");
    bytes_ += kBinUnicode;
    put_little_endian(text.size(), sizeof(uint32_t));
    bytes_ += text;
  }

  void put_global(std::string_view module, std::string_view name) {
    bytes_ += kGlobal;
    bytes_.append(module).append("\n").append(name).append("\n");
  }

  void put_little_endian(uint64_t value, size_t num_bytes) {
    for (size_t i = 0; i < num_bytes; ++i) bytes_ += static_cast<char>(value >> (8 * i));
  }

  std::string bytes_;
  size_t num_values_ = 0;
};

}  // namespace

std::string write_pickle(const PickleValue& value) {
  return PickleWriter().write(value);
}

}  // namespace lockstep
