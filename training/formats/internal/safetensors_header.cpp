#include "lockstep/training/formats/internal/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/base/internal/text_excerpt.h"
#include "lockstep/training/formats/internal/tensor_size.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr const char* kMetadataKey = "__metadata__";

constexpr std::array<std::pair<std::string_view, uint64_t>, 19> kElementSizes{{
    {"BOOL", 1},    {"U8", 1},          {"I8", 1},      {"F8_E4M3", 1}, {"F8_E4M3FNUZ", 1},
    {"F8_E5M2", 1}, {"F8_E5M2FNUZ", 1}, {"F8_E8M0", 1}, {"U16", 2},     {"I16", 2},
    {"F16", 2},     {"BF16", 2},        {"U32", 4},     {"I32", 4},     {"F32", 4},
    {"U64", 8},     {"I64", 8},         {"F64", 8},     {"C64", 8},
}};

std::string tensor_part(const std::string& name) {
  return "tensor " + quoted_excerpt(name);
}

/// Accepts only the parts that a header may hold, one by one, so that a hostile header builds nothing.
class HeaderReader : public json::json_sax_t {
 public:
  explicit HeaderReader(const std::string& file) : file_(file) {}

  SafetensorsHeader take() { return std::move(header_); }

  bool null() override { refuse("null"); }
  bool boolean(bool) override { refuse("a truth value"); }
  bool number_float(number_float_t, const string_t& text) override { refuse(excerpt(text)); }
  bool binary(binary_t&) override { refuse("bytes"); }

  bool number_integer(number_integer_t value) override { refuse(std::to_string(value)); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kShape) {
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) refuse(std::to_string(value));
      if (entry_.shape.size() == kMaxTensorDimensions)
        fail("at most " + std::to_string(kMaxTensorDimensions) + " dimensions", "more");
      entry_.shape.push_back(static_cast<int64_t>(value));
    } else if (place_ == Place::kOffsets) {
      if (num_offsets_ == offsets_.size()) fail("two data_offsets", "more");
      offsets_[num_offsets_++] = value;
    } else {
      refuse(std::to_string(value));
    }
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) {
      header_.metadata[key_] = value;
    } else if (place_ == Place::kEntry && key_ == "dtype") {
      entry_.dtype = value;
    } else {
      refuse(quoted_excerpt(value));
    }
    return true;
  }

  bool start_object(size_t) override {
    if (place_ == Place::kStart) {
      place_ = Place::kTop;
    } else if (place_ == Place::kTop && key_ == kMetadataKey) {
      place_ = Place::kMetadata;
    } else if (place_ == Place::kTop) {
      place_ = Place::kEntry;
      entry_ = {.name = key_};
      given_.clear();
      num_offsets_ = 0;
    } else {
      refuse("an object");
    }
    return true;
  }

  bool key(string_t& key) override {
    bool is_new = true;
    if (place_ == Place::kTop) {
      is_new = names_.insert(key).second;
    } else if (place_ == Place::kMetadata) {
      is_new = !header_.metadata.contains(key);
    } else {
      if (key != "dtype" && key != "shape" && key != "data_offsets")
        fail("dtype, shape and data_offsets", "the key " + quoted_excerpt(key));
      is_new = given_.insert(key).second;
    }
    if (!is_new) throw CheckpointError(file_, part(), "each key once", quoted_excerpt(key) + " twice");
    key_ = key;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kEntry) {
      end_entry();
      place_ = Place::kTop;
    } else {
      place_ = place_ == Place::kMetadata ? Place::kTop : Place::kEnd;
    }
    return true;
  }

  bool start_array(size_t) override {
    if (place_ != Place::kEntry || key_ == "dtype") refuse("an array");
    place_ = key_ == "shape" ? Place::kShape : Place::kOffsets;
    return true;
  }

  bool end_array() override {
    place_ = Place::kEntry;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const json::exception&) override {
    throw CheckpointError(file_, "header", "JSON in UTF-8", "an error at byte " + std::to_string(position));
  }

 private:
  enum class Place { kStart, kTop, kMetadata, kEntry, kShape, kOffsets, kEnd };

  std::string part() const {
    switch (place_) {
      case Place::kMetadata:
        return kMetadataKey;
      case Place::kEntry:
      case Place::kShape:
      case Place::kOffsets:
        return tensor_part(entry_.name);
      default:
        return "header";
    }
  }

  std::string expected() const {
    switch (place_) {
      case Place::kMetadata:
        return "a string for " + quoted_excerpt(key_);
      case Place::kShape:
        return "sizes in shape";
      case Place::kOffsets:
        return "two offsets in data_offsets";
      case Place::kEntry:
        return (key_ == "dtype" ? "a string for " : "an array for ") + key_;
      default:
        return "an object for " + (place_ == Place::kStart ? "the header" : quoted_excerpt(key_));
    }
  }

  [[noreturn]] void fail(const std::string& expected, const std::string& actual) const {
    throw CheckpointError(file_, part(), expected, actual);
  }

  [[noreturn]] void refuse(const std::string& actual) const { fail(expected(), actual); }

  void end_entry() {
    for (const char* key : {"dtype", "shape", "data_offsets"})
      if (!given_.contains(key)) fail("a " + std::string(key), "none");
    const auto element_size = safetensors_element_size(entry_.dtype);
    if (!element_size) fail("a dtype that LibTorch has", quoted_excerpt(entry_.dtype));
    if (num_offsets_ != offsets_.size()) fail("two data_offsets", std::to_string(num_offsets_));
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    const auto size = checked_tensor_bytes(entry_.shape, *element_size);
    if (!size) fail("a shape that can be counted", "one whose number of bytes overflows");
    if (entry_.begin > entry_.end || entry_.end - entry_.begin != *size) {
      fail("data_offsets " + std::to_string(*size) + " bytes apart, as dtype and shape say",
           std::to_string(entry_.begin) + " and " + std::to_string(entry_.end));
    }
    header_.tensors.push_back(std::move(entry_));
  }

  const std::string& file_;
  SafetensorsHeader header_;
  std::set<std::string> names_;
  std::set<std::string> given_;
  Place place_ = Place::kStart;
  std::string key_;
  SafetensorsEntry entry_;
  std::array<uint64_t, 2> offsets_{};
  size_t num_offsets_ = 0;
};

}  // namespace

std::optional<uint64_t> safetensors_element_size(std::string_view dtype) {
  for (const auto& [name, size] : kElementSizes)
    if (name == dtype) return size;
  return std::nullopt;
}

uint64_t read_safetensors_length(const unsigned char* length, uint64_t file_size, const std::string& file) {
  uint64_t size = 0;
  for (size_t i = kSafetensorsLengthBytes; i-- > 0;) size = size << 8 | length[i];
  if (size > kMaxSafetensorsHeader) {
    throw CheckpointError(file, "length of the header",
                          "at most " + std::to_string(kMaxSafetensorsHeader) + " bytes",
                          std::to_string(size));
  }
  if (size > file_size - kSafetensorsLengthBytes) {
    throw CheckpointError(
        file, "length of the header",
        "at most the file's other " + std::to_string(file_size - kSafetensorsLengthBytes) + " bytes",
        std::to_string(size));
  }
  return size;
}

SafetensorsHeader parse_safetensors_header(std::string_view text, uint64_t data_size,
                                           const std::string& file) {
  if (text.empty() || text[0] != '{') throw CheckpointError(file, "header", "a JSON object", "none");
  HeaderReader reader(file);
  json::sax_parse(text, &reader);
  SafetensorsHeader header = reader.take();
  std::stable_sort(header.tensors.begin(), header.tensors.end(), [](const auto& left, const auto& right) {
    return std::tie(left.begin, left.end) < std::tie(right.begin, right.end);
  });
  uint64_t next = 0;
  for (const auto& tensor : header.tensors) {
    if (tensor.begin != next) {
      throw CheckpointError(file, tensor_part(tensor.name),
                            "bytes from " + std::to_string(next) + " on, where those before it end",
                            std::to_string(tensor.begin));
    }
    next = tensor.end;
  }
  if (next != data_size) {
    throw CheckpointError(file, "file size", std::to_string(next) + " bytes of tensors",
                          std::to_string(data_size));
  }
  return header;
}

SafetensorsHeader place_safetensors(std::vector<SafetensorsEntry> tensors,
                                    std::map<std::string, std::string> metadata) {
  std::set<std::string> names;
  for (const auto& tensor : tensors) {
    const std::string who = "[safetensors] " + tensor_part(tensor.name) + ": ";
    if (tensor.name == kMetadataKey)
      throw InvalidArgument(who + "expected another name: this one is reserved");
    if (!names.insert(tensor.name).second)
      throw InvalidArgument(who + "expected a name for each tensor, but got it twice");
    if (!safetensors_element_size(tensor.dtype))
      throw InvalidArgument(who + "expected a dtype of the format, but got " + quoted_excerpt(tensor.dtype));
  }
  std::sort(tensors.begin(), tensors.end(), [](const auto& left, const auto& right) {
    const auto left_size = *safetensors_element_size(left.dtype);
    const auto right_size = *safetensors_element_size(right.dtype);
    return left_size != right_size ? left_size > right_size : left.name < right.name;
  });
  uint64_t next = 0;
  for (auto& tensor : tensors) {
    tensor.begin = next;
    next += checked_tensor_bytes(tensor.shape, *safetensors_element_size(tensor.dtype)).value();
    tensor.end = next;
  }
  return {.tensors = std::move(tensors), .metadata = std::move(metadata)};
}

std::string write_safetensors_header(const SafetensorsHeader& header) {
  json root = json::object();
  if (!header.metadata.empty()) root[kMetadataKey] = header.metadata;
  for (const auto& tensor : header.tensors) {
    root[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {tensor.begin, tensor.end}}};
  }
  std::string text;
  try {
    text = root.dump();
  } catch (const json::type_error&) {
    throw InvalidArgument("[safetensors] expected names and metadata in UTF-8, but got other bytes");
  }
  text.append((kSafetensorsLengthBytes - text.size() % kSafetensorsLengthBytes) % kSafetensorsLengthBytes,
              ' ');
  if (text.size() > kMaxSafetensorsHeader) {
    throw InvalidArgument("[safetensors] expected a header of at most " +
                          std::to_string(kMaxSafetensorsHeader) + " bytes, but got " +
                          std::to_string(text.size()));
  }
  std::string bytes;
  for (size_t i = 0; i < kSafetensorsLengthBytes; ++i)
    bytes += static_cast<char>(static_cast<uint64_t>(text.size()) >> (8 * i));
  return bytes + text;
}

}  // namespace lockstep
