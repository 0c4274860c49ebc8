#include "lockstep/training/formats/state_file.h"

#include <c10/util/StringUtil.h>
#include <caffe2/serialize/inline_container.h>

#include <bit>
#include <exception>
#include <map>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/internal/input_file.h"
#include "lockstep/runtime/base/files/internal/replaced_file.h"
#include "lockstep/training/formats/internal/pickle_writer.h"
#include "lockstep/training/formats/internal/state_archive.h"
#include "lockstep/training/formats/internal/state_archive_reader.h"
#include "lockstep/training/formats/internal/tensor_dtypes.h"

namespace lockstep {
namespace {

// Tensors are copied between memory and file byte by byte.
static_assert(std::endian::native == std::endian::little);

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

}  // namespace

void write_state_archive(const StateValue& state, PartSink& sink, const TensorMaker& make,
                         bool has_checksums) {
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
    caffe2::serialize::PyTorchStreamWriter archive(
        [&](const void* bytes, size_t count) {
          guarded([&] { sink.write(bytes, count); });
          return count;
        },
        has_checksums);
    const auto add = [&](const std::string& record, const std::string& part, const void* bytes,
                         size_t count) {
      archive.writeRecord(record, bytes, count);
      guarded([&] { sink.end_part(part); });
    };
    add("data.pkl", "data.pkl", pickle.data(), pickle.size());
    add("byteorder", "byteorder", kStateByteOrder, std::char_traits<char>::length(kStateByteOrder));
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

void save_state_file(const std::string& path, const StateValue& state) {
  save_state_archive(path, state, {});
}

void save_state_archive(const std::string& path, const StateValue& state, const TensorMaker& make) {
  ReplacedFile file(path);
  FileSink sink(file);
  write_state_archive(state, sink, make);
  file.commit();
}

StateValue read_state_archive(const InputFile& file) {
  return StateArchiveReader(file).read();
}

StateValue load_state_file(const std::string& path) {
  return read_state_archive(InputFile(path));
}

}  // namespace lockstep
