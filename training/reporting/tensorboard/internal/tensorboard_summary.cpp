#include "lockstep/training/reporting/tensorboard/internal/tensorboard_summary.h"

#include <cstring>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

// Field numbers are those of TensorBoard's .proto files, which the functions' comments name.
enum class DataType { kFloat = 1, kDouble = 2, kString = 7 };
enum class DataClass { kScalar = 1, kTensor = 2, kBlobSequence = 3 };

/// TensorProto (tensor.proto) without its values.
ProtobufMessage make_tensor(DataType type, std::initializer_list<int64_t> shape) {
  ProtobufMessage dimensions;
  for (const int64_t size : shape) dimensions.message(2, ProtobufMessage().integer(1, size));
  return ProtobufMessage().integer(1, static_cast<int64_t>(type)).message(2, dimensions);
}

/// SummaryMetadata (summary.proto).
ProtobufMessage make_metadata(std::string_view plugin, const ProtobufMessage& content) {
  return ProtobufMessage().message(1, ProtobufMessage().text(1, plugin).message(2, content));
}

ProtobufMessage make_metadata(std::string_view plugin, DataClass data_class) {
  return make_metadata(plugin, ProtobufMessage()).integer(4, static_cast<int64_t>(data_class));
}

/// Summary.Value (summary.proto).
ProtobufMessage make_value(const std::string& tag, const ProtobufMessage& metadata,
                           const ProtobufMessage& tensor) {
  return ProtobufMessage().text(1, tag).message(8, tensor).message(9, metadata);
}

/// HParamsPluginData (plugin_data.proto) with one of its members set; these summaries have no numbers.
ProtobufMessage hyperparameter_value(const std::string& tag, int field, const ProtobufMessage& member) {
  constexpr int64_t kVersion = 0;
  const auto content = ProtobufMessage().integer(1, kVersion).message(field, member);
  return make_value(tag, make_metadata("hparams", content), make_tensor(DataType::kFloat, {0}));
}

/// Value (google/protobuf/struct.proto).
ProtobufMessage struct_value(const HyperparameterValue& value) {
  if (const auto* number = std::get_if<double>(&value)) return ProtobufMessage().number(2, *number);
  if (const auto* is_on = std::get_if<bool>(&value)) return ProtobufMessage().integer(4, *is_on ? 1 : 0);
  return ProtobufMessage().text(3, std::get<std::string>(value));
}

/// DataType (the plugin's api.proto).
int64_t hyperparameter_type(const HyperparameterValue& value) {
  constexpr int64_t kText = 1;
  constexpr int64_t kSwitch = 2;
  constexpr int64_t kNumber = 3;
  if (std::holds_alternative<double>(value)) return kNumber;
  return std::holds_alternative<bool>(value) ? kSwitch : kText;
}

/// Returns the width and height in the header of a PNG file.
std::pair<uint32_t, uint32_t> png_size(std::span<const uint8_t> png) {
  // The signature, then the first chunk: its length, its name and two numbers of four bytes each.
  constexpr std::string_view kStart("\x89PNG\r\n\x1a\n\0\0\0\x0DIHDR", 16);
  if (png.size() < kStart.size() + 8 || std::memcmp(png.data(), kStart.data(), kStart.size()) != 0) {
    throw InvalidArgument("[EventFileWriter] expected a PNG file, but got " + std::to_string(png.size()) +
                          " bytes that do not begin as one");
  }
  const auto number_at = [&](size_t place) {
    uint32_t number = 0;
    for (size_t i = 0; i < 4; ++i) number = number << 8 | png[place + i];
    return number;
  };
  return {number_at(kStart.size()), number_at(kStart.size() + 4)};
}

}  // namespace

ProtobufMessage scalar_summary(const std::string& tag, double value) {
  const std::vector<float> values = {static_cast<float>(value)};
  return make_value(tag, make_metadata("scalars", DataClass::kScalar),
                    make_tensor(DataType::kFloat, {}).packed_floats(5, values));
}

ProtobufMessage histogram_summary(const std::string& tag, const ValueHistogram& histogram) {
  std::vector<double> rows;
  rows.reserve(3 * histogram.bins.size());
  for (const auto& bin : histogram.bins) {
    rows.insert(rows.end(), {bin.left, bin.right, static_cast<double>(bin.count)});
  }
  const auto num_rows = static_cast<int64_t>(histogram.bins.size());
  return make_value(tag, make_metadata("histograms", DataClass::kTensor),
                    make_tensor(DataType::kDouble, {num_rows, 3}).packed_doubles(6, rows));
}

ProtobufMessage image_summary(const std::string& tag, std::span<const uint8_t> png) {
  const auto [width, height] = png_size(png);
  auto tensor = make_tensor(DataType::kString, {3});
  tensor.text(8, std::to_string(width)).text(8, std::to_string(height)).bytes(8, png);
  return make_value(tag, make_metadata("images", DataClass::kBlobSequence), tensor);
}

ProtobufMessage text_summary(const std::string& tag, const std::string& text) {
  return make_value(tag, make_metadata("text", DataClass::kTensor),
                    make_tensor(DataType::kString, {1}).text(8, text));
}

ProtobufMessage experiment_summary(const HyperparameterSession& session, double time) {
  ProtobufMessage experiment;  // Experiment (api.proto)
  experiment.number(3, time);
  for (const auto& [name, value] : session.values) {
    experiment.message(4, ProtobufMessage().text(1, name).integer(4, hyperparameter_type(value)));
  }
  for (const auto& [tag, folder, title] : session.metrics) {
    const auto name = ProtobufMessage().text(1, folder).text(2, tag);
    experiment.message(5, ProtobufMessage().message(1, name).text(3, title));
  }
  return hyperparameter_value("_hparams_/experiment", 2, experiment);
}

ProtobufMessage session_start_summary(const HyperparameterSession& session, double time) {
  ProtobufMessage start;  // SessionStartInfo (plugin_data.proto)
  for (const auto& [name, value] : session.values) {
    start.message(1, ProtobufMessage().text(1, name).message(2, struct_value(value)));
  }
  start.text(4, session.group).number(5, time);
  return hyperparameter_value("_hparams_/session_start_info", 3, start);
}

ProtobufMessage session_end_summary(SessionStatus status, double time) {
  constexpr int64_t kStatusSuccess = 1;
  constexpr int64_t kStatusFailure = 2;
  ProtobufMessage end;  // SessionEndInfo (plugin_data.proto)
  end.integer(1, status == SessionStatus::kSuccess ? kStatusSuccess : kStatusFailure).number(2, time);
  return hyperparameter_value("_hparams_/session_end_info", 4, end);
}

}  // namespace lockstep
