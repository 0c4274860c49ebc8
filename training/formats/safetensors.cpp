#include "lockstep/training/formats/safetensors.h"

#include <array>
#include <bit>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/base/files/internal/input_file.h"
#include "lockstep/runtime/base/files/internal/replaced_file.h"
#include "lockstep/training/formats/internal/safetensors_header.h"
#include "lockstep/training/formats/internal/tensor_maker.h"

namespace lockstep {
namespace {

// Tensors are copied between memory and file byte by byte.
static_assert(std::endian::native == std::endian::little);

constexpr std::array<std::pair<const char*, torch::ScalarType>, 19> kDtypes{{
    {"BOOL", torch::kBool},
    {"U8", torch::kUInt8},
    {"I8", torch::kInt8},
    {"F8_E4M3", torch::kFloat8_e4m3fn},
    {"F8_E4M3FNUZ", torch::kFloat8_e4m3fnuz},
    {"F8_E5M2", torch::kFloat8_e5m2},
    {"F8_E5M2FNUZ", torch::kFloat8_e5m2fnuz},
    {"F8_E8M0", torch::kFloat8_e8m0fnu},
    {"U16", torch::kUInt16},
    {"I16", torch::kInt16},
    {"F16", torch::kFloat16},
    {"BF16", torch::kBFloat16},
    {"U32", torch::kUInt32},
    {"I32", torch::kInt32},
    {"F32", torch::kFloat32},
    {"U64", torch::kUInt64},
    {"I64", torch::kInt64},
    {"F64", torch::kFloat64},
    {"C64", torch::kComplexFloat},
}};

std::string dtype_name(const std::string& tensor, torch::ScalarType dtype) {
  for (const auto& [name, candidate] : kDtypes)
    if (candidate == dtype) return name;
  throw InvalidArgument("[save_safetensors] tensor '" + tensor +
                        "': expected a dtype that the format has, but got " + c10::toString(dtype));
}

torch::ScalarType dtype_named(const std::string& name) {
  for (const auto& [candidate, dtype] : kDtypes)
    if (name == candidate) return dtype;
  throw std::logic_error("a dtype that parse_safetensors_header() lets pass is missing here: " + name);
}

SafetensorsEntry entry_of(const std::string& name, const torch::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != torch::kStrided) {
    throw InvalidArgument("[save_safetensors] tensor '" + name + "': expected a dense tensor, but got " +
                          (tensor.defined() ? "a sparse one" : "an undefined one"));
  }
  return {.name = name, .dtype = dtype_name(name, tensor.scalar_type()), .shape = tensor.sizes().vec()};
}

std::vector<SafetensorsEntry> entries_of(const NamedTensors& tensors) {
  std::vector<SafetensorsEntry> entries;
  entries.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) entries.push_back(entry_of(name, tensor));
  return entries;
}

/// Returns the bytes to write.
torch::Tensor written(const std::string& name, const torch::Tensor& tensor, const TensorMaker& make) {
  if (tensor.is_meta() && !make) {
    throw InvalidArgument("[save_safetensors] tensor '" + name +
                          "': expected one with values, but got one without");
  }
  const torch::Tensor values = tensor.is_meta() ? make(tensor) : tensor;
  return values.detach().to(torch::kCPU).resolve_conj().resolve_neg().contiguous();
}

}  // namespace

NamedTensors in_safetensors_order(const NamedTensors& tensors) {
  const std::map<std::string, torch::Tensor> by_name(tensors.begin(), tensors.end());
  NamedTensors ordered;
  for (const auto& entry : place_safetensors(entries_of(tensors), {}).tensors)
    ordered.emplace_back(entry.name, by_name.at(entry.name));
  return ordered;
}

void save_safetensors(const std::string& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata) {
  save_safetensors(path, tensors, metadata, {});
}

void save_safetensors(const std::string& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata, const TensorMaker& make) {
  const std::map<std::string, torch::Tensor> by_name(tensors.begin(), tensors.end());
  const SafetensorsHeader header = place_safetensors(entries_of(tensors), metadata);
  const std::string bytes = write_safetensors_header(header);
  ReplacedFile file(path);
  file.write(bytes.data(), bytes.size());
  for (const auto& entry : header.tensors) {
    const auto tensor = written(entry.name, by_name.at(entry.name), make);
    file.write(tensor.const_data_ptr(), tensor.nbytes());
  }
  file.commit();
}

Safetensors load_safetensors(const std::string& path) {
  const InputFile file(path);
  std::array<unsigned char, kSafetensorsLengthBytes> length{};
  file.read(0, length.data(), length.size());
  std::string json(read_safetensors_length(length.data(), file.size(), path), '\0');
  file.read(kSafetensorsLengthBytes, json.data(), json.size());
  const uint64_t data_begin = kSafetensorsLengthBytes + json.size();
  SafetensorsHeader header = parse_safetensors_header(json, file.size() - data_begin, path);

  Safetensors loaded{.tensors = {}, .metadata = std::move(header.metadata)};
  for (const auto& entry : header.tensors) {
    auto tensor = torch::empty(entry.shape, dtype_named(entry.dtype));
    file.read(data_begin + entry.begin, tensor.mutable_data_ptr(), tensor.nbytes());
    loaded.tensors.emplace_back(entry.name, std::move(tensor));
  }
  return loaded;
}

}  // namespace lockstep
