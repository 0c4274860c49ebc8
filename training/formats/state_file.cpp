#include "lockstep/training/formats/state_file.h"

#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>
#include <caffe2/serialize/inline_container.h>
#include <zlib.h>

#include <array>
#include <bit>
#include <exception>
#include <map>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/base/files/internal/input_file.h"
#include "lockstep/runtime/base/files/internal/replaced_file.h"
#include "lockstep/runtime/base/files/internal/zip_directory.h"
#include "lockstep/runtime/base/internal/text_excerpt.h"
#include "lockstep/training/formats/internal/pickle_reader.h"
#include "lockstep/training/formats/internal/pickle_writer.h"
#include "lockstep/training/formats/internal/state_archive.h"
#include "lockstep/training/formats/internal/tensor_size.h"

namespace lockstep {
namespace {

// Tensors are copied between memory and file byte by byte.
static_assert(std::endian::native == std::endian::little);
constexpr const char* kByteOrder = "little";

constexpr std::array<std::pair<const char*, torch::ScalarType>, 20> kDtypesByName{{
    {"float32", torch::kFloat32},
    {"float64", torch::kFloat64},
    {"float16", torch::kFloat16},
    {"bfloat16", torch::kBFloat16},
    {"uint8", torch::kUInt8},
    {"int8", torch::kInt8},
    {"int16", torch::kInt16},
    {"int32", torch::kInt32},
    {"int64", torch::kInt64},
    {"bool", torch::kBool},
    {"complex64", torch::kComplexFloat},
    {"complex128", torch::kComplexDouble},
    {"uint16", torch::kUInt16},
    {"uint32", torch::kUInt32},
    {"uint64", torch::kUInt64},
    {"float8_e4m3fn", torch::kFloat8_e4m3fn},
    {"float8_e4m3fnuz", torch::kFloat8_e4m3fnuz},
    {"float8_e5m2", torch::kFloat8_e5m2},
    {"float8_e5m2fnuz", torch::kFloat8_e5m2fnuz},
    {"float8_e8m0fnu", torch::kFloat8_e8m0fnu},
}};

/// Gives each memory that tensors share one record per dtype they view it as: Python gives all tensors of a
/// record the dtype of the first.
class StorageTable {
 public:
  PickledTensor add(const std::string& name, const torch::Tensor& tensor) {
    if (!tensor.defined() || tensor.layout() != torch::kStrided)
      throw InvalidArgument("[save_state_file] expected dense tensors, but got a sparse or undefined one");
    std::string dtype;
    for (const auto& [name, candidate] : kDtypesByName)
      if (candidate == tensor.scalar_type()) dtype = name;
    if (dtype.empty()) {
      throw InvalidArgument(c10::str("[save_state_file] expected tensors of plain dtypes, but got one of ",
                                     tensor.scalar_type()));
    }
    const torch::Tensor whole = whole_of(tensor);
    const auto [place, is_new] =
        places_.emplace(Key(whole.storage().unsafeGetStorageImpl(), whole.scalar_type()), storages_.size());
    if (is_new) {
      // The copy has the same bytes in the same order: to() preserves the strides of a tensor without gaps.
      storages_.push_back(whole.is_meta() ? whole : whole.to(torch::kCPU));
      kept_.push_back(whole);
      names_.push_back(name);
    }
    return {.dtype = dtype,
            .storage = std::to_string(place->second),
            .storage_bytes = whole.nbytes(),
            .offset = 0,
            .shape = whole.sizes().vec(),
            .strides = whole.strides().vec()};
  }

  const std::vector<torch::Tensor>& storages() const { return storages_; }
  /// Names of each storage's first tensor.
  const std::vector<std::string>& names() const { return names_; }

 private:
  using Key = std::pair<const c10::StorageImpl*, torch::ScalarType>;

  /// Returns the tensor itself if it fills its memory, else a copy that does.
  static torch::Tensor whole_of(const torch::Tensor& tensor) {
    const torch::Tensor plain = tensor.detach().resolve_conj().resolve_neg();
    const bool is_whole = plain.is_non_overlapping_and_dense() && plain.storage().nbytes() == plain.nbytes();
    return is_whole ? plain : plain.clone(at::MemoryFormat::Contiguous);
  }

  std::map<Key, size_t> places_;
  std::vector<torch::Tensor> storages_;
  std::vector<std::string> names_;
  std::vector<torch::Tensor> kept_;  // so that no address is reused
};

/// Returns the values of a tensor that has none yet.
torch::Tensor made(const torch::Tensor& tensor, const TensorMaker& make) {
  if (!make) throw InvalidArgument("[save_state_file] expected tensors with values, but got one without");
  const torch::Tensor values = make(tensor);
  TORCH_CHECK(values.is_cpu() && values.sizes() == tensor.sizes() && values.strides() == tensor.strides() &&
                  values.scalar_type() == tensor.scalar_type() &&
                  values.nbytes() == values.storage().nbytes(),
              "values of another tensor");
  return values;
}

/// Writes to a file and ignores where parts end.
class FileSink : public PartSink {
 public:
  explicit FileSink(ReplacedFile& file) : file_(file) {}
  void write(const void* bytes, size_t count) override { file_.write(bytes, count); }
  void end_part(const std::string&) override {}

 private:
  ReplacedFile& file_;
};

class StateReader {
 public:
  explicit StateReader(const InputFile& file) : file_(file), records_(read_zip_directory(file_)) {
    for (const auto& [name, record] : records_) {
      const size_t slash = name.find('/');
      if (slash != std::string::npos && name.substr(slash) == "/data.pkl")
        folder_ = name.substr(0, slash + 1);
    }
    if (folder_.empty()) throw CheckpointError(file_.path(), "archive", "a record data.pkl", "none");
    if (records_.contains(folder_ + "constants.pkl")) {
      throw CheckpointError(file_.path(), "archive", "what Lockstep or Python's torch.save() wrote",
                            "a TorchScript archive, of torch::save() or torch.jit.save()");
    }
  }

  StateValue read() {
    const auto order = records_.find(folder_ + "byteorder");
    if (order != records_.end()) {
      const std::string text = read_text("byteorder", 16);
      if (text != kByteOrder)
        throw CheckpointError(file_.path(), "byteorder", kByteOrder, quoted_excerpt(text));
    }
    const PickleValue value = read_pickle(read_text("data.pkl", kMaxPickleBytes), file_.path());
    return map_tensors<torch::Tensor>(value, [this](const PickledTensor& tensor) { return make(tensor); });
  }

 private:
  const ZipRecord& find(const std::string& name) const {
    const auto found = records_.find(folder_ + name);
    if (found == records_.end())
      throw CheckpointError(file_.path(), "archive", "a record " + quoted_excerpt(name), "none");
    return found->second;
  }

  void read_record(const std::string& name, const ZipRecord& record, void* bytes) const {
    if (!record.is_plain) {
      throw CheckpointError(file_.path(), "record " + quoted_excerpt(name), "plain bytes",
                            "compressed or encrypted ones");
    }
    file_.read(record.begin, bytes, record.size);
    if (record.crc32 != 0 && crc32_z(0, static_cast<const Bytef*>(bytes), record.size) != record.crc32) {
      throw CheckpointError(file_.path(), "record " + quoted_excerpt(name), "bytes with their checksum",
                            "others: the file is damaged");
    }
  }

  std::string read_text(const std::string& name, size_t limit) const {
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
  const torch::Tensor& storage_of(const PickledTensor& tensor) {
    const auto known = storages_.find(tensor.storage);
    if (known != storages_.end()) return known->second;
    const std::string name = "data/" + tensor.storage;
    const ZipRecord& record = find(name);
    auto bytes = at::empty({static_cast<int64_t>(record.size)}, torch::kUInt8);
    read_record(name, record, bytes.mutable_data_ptr());
    return storages_.emplace(tensor.storage, std::move(bytes)).first->second;
  }

  torch::Tensor make(const PickledTensor& tensor) {
    const torch::Tensor& bytes = storage_of(tensor);
    const std::string part = "record " + quoted_excerpt("data/" + tensor.storage);
    if (tensor.storage_bytes != static_cast<uint64_t>(bytes.numel())) {
      throw CheckpointError(file_.path(), part, std::to_string(tensor.storage_bytes) + " bytes",
                            std::to_string(bytes.numel()));
    }
    const auto size = find_pickled_dtype(tensor.dtype)->element_size;
    const auto elements = checked_tensor_bytes(tensor.shape, 1);
    const bool fits = tensor.shape.size() <= kMaxTensorDimensions && elements &&
                      *elements <= tensor.storage_bytes / size &&
                      end_of(tensor) <= tensor.storage_bytes / size;
    if (!fits) {
      throw CheckpointError(file_.path(), part,
                            "a tensor within its " + std::to_string(tensor.storage_bytes) + " bytes",
                            c10::str(tensor.dtype, " ", at::IntArrayRef(tensor.shape), " with strides ",
                                     at::IntArrayRef(tensor.strides), " from element ", tensor.offset));
    }
    auto result = at::empty({0}, dtype_named(tensor.dtype));
    result.set_(bytes.storage(), tensor.offset, tensor.shape, tensor.strides);
    return result;
  }

  /// Returns one past the last element, or a number that no storage reaches.
  static uint64_t end_of(const PickledTensor& tensor) {
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

  static torch::ScalarType dtype_named(const std::string& name) {
    for (const auto& [candidate, dtype] : kDtypesByName)
      if (name == candidate) return dtype;
    throw std::logic_error("a dtype that find_pickled_dtype() knows is missing here: " + name);
  }

  const InputFile& file_;
  std::map<std::string, ZipRecord> records_;
  std::string folder_;
  std::map<std::string, torch::Tensor> storages_;
};

}  // namespace

void write_state_archive(const StateValue& state, PartSink& sink, const TensorMaker& make) {
  std::vector<std::string> names;
  visit_tensors(state, [&](const std::string& name, const torch::Tensor&) { names.push_back(name); });
  StorageTable table;
  size_t place = 0;
  const std::string pickle = write_pickle(map_tensors<PickledTensor>(
      state, [&](const torch::Tensor& tensor) { return table.add(names[place++], tensor); }));
  std::exception_ptr failure;
  // The archive's destructor must not fail: after a failure, the archive is told that all writes succeed.
  const auto guarded = [&](const auto& act) {
    try {
      if (!failure) act();
    } catch (...) {
      failure = std::current_exception();
    }
  };
  {
    caffe2::serialize::PyTorchStreamWriter archive([&](const void* bytes, size_t count) {
      guarded([&] { sink.write(bytes, count); });
      return count;
    });
    const auto add = [&](const std::string& record, const std::string& part, const void* bytes,
                         size_t count) {
      archive.writeRecord(record, bytes, count);
      guarded([&] { sink.end_part(part); });
    };
    add("data.pkl", "data.pkl", pickle.data(), pickle.size());
    add("byteorder", "byteorder", kByteOrder, std::char_traits<char>::length(kByteOrder));
    for (size_t i = 0; i < table.storages().size() && !failure; ++i) {
      torch::Tensor tensor = table.storages()[i];
      if (tensor.is_meta()) guarded([&] { tensor = made(tensor, make); });
      if (failure) break;
      add("data/" + std::to_string(i), table.names()[i], tensor.numel() == 0 ? "" : tensor.const_data_ptr(),
          tensor.nbytes());
    }
    archive.writeEndOfFile();
  }
  guarded([&] { sink.end_part("directory"); });
  if (failure) std::rethrow_exception(failure);
}

StateValue read_state_archive(const InputFile& file) {
  return StateReader(file).read();
}

void save_state_file(const std::string& path, const StateValue& state) {
  save_state_archive(path, state, {});
}

void save_state_archive(const std::string& path, const StateValue& state, const TensorMaker& make) {
  ReplacedFile file(path);
  FileSink sink(file);
  write_state_archive(state, sink, make);
  file.commit();
}

StateValue load_state_file(const std::string& path) {
  return read_state_archive(InputFile(path));
}

}  // namespace lockstep
