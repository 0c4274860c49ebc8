#include "lockstep/parameter_server/service/parameter_requests.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/little_endian.h"

namespace lockstep {
namespace {

/// Reads a message's fields and tensors in the order in which they were written.
class MessageReader {
 public:
  explicit MessageReader(const RpcMessage& message) : fields_(message.fields), tensors_(message.tensors) {}

  LittleEndianReader& fields() { return fields_; }

  bool read_bool() { return read_choice(2, "0 or 1") == 1; }
  /// Reads a number below `count`.
  uint8_t read_choice(uint8_t count, const char* what) {
    const auto value = fields_.read<uint8_t>();
    if (value >= count)
      throw InvalidArgument(c10::str("expected ", what, ", but got ", static_cast<int>(value)));
    return value;
  }
  at::Tensor read_tensor() {
    if (next_ == tensors_.size())
      throw InvalidArgument(c10::str("expected more than ", next_, " tensors in the message"));
    return tensors_[next_++];
  }
  /// Reads a count of items of at least `min_bytes` each. The limit keeps a forged count from taking memory.
  size_t read_count(size_t min_bytes) {
    const auto count = fields_.read<uint32_t>();
    if (count > fields_.num_left() / min_bytes)
      throw InvalidArgument(c10::str("expected ", count, " parts, but got ", fields_.num_left(), " bytes"));
    return count;
  }
  void check_end() const {
    if (fields_.num_left() > 0 || next_ != tensors_.size())
      throw InvalidArgument(c10::str("expected nothing more in the message, but got ", fields_.num_left(),
                                     " bytes and ", tensors_.size() - next_, " tensors"));
  }

 private:
  LittleEndianReader fields_;
  const std::vector<at::Tensor>& tensors_;
  size_t next_ = 0;
};

class MessageWriter {
 public:
  LittleEndianWriter& fields() { return fields_; }
  void write_bool(bool value) { fields_.write(static_cast<uint8_t>(value)); }
  void write_tensor(const at::Tensor& tensor) { tensors_.push_back(tensor); }
  void write_count(size_t count) { fields_.write(static_cast<uint32_t>(count)); }
  RpcMessage take() { return {.fields = fields_.take(), .tensors = std::move(tensors_)}; }

 private:
  LittleEndianWriter fields_;
  std::vector<at::Tensor> tensors_;
};

// Variants: the alternative's index, then its fields in the order of their declaration.

void visit_fields(auto& rule, const auto& visit) requires requires {
  rule.nesterov;
}
{
  visit(rule.momentum), visit(rule.dampening), visit(rule.weight_decay), visit(rule.nesterov);
  visit(rule.maximize);
}
void visit_fields(auto& rule, const auto& visit) requires requires {
  rule.lr_decay;
}
{
  visit(rule.lr_decay), visit(rule.weight_decay), visit(rule.initial_accumulator_value), visit(rule.eps);
  visit(rule.maximize);
}
void visit_fields(auto& rule, const auto& visit) requires requires {
  rule.amsgrad;
}
{
  visit(rule.beta1), visit(rule.beta2), visit(rule.eps), visit(rule.weight_decay);
  visit(rule.is_decoupled), visit(rule.amsgrad), visit(rule.maximize);
}
void visit_fields(auto& constant, const auto& visit) requires requires {
  constant.value;
}
{ visit(constant.value); }
void visit_fields(auto& uniform, const auto& visit) requires requires {
  uniform.low;
}
{ visit(uniform.low), visit(uniform.high), visit(uniform.seed); }
void visit_fields(auto& normal, const auto& visit) requires requires {
  normal.std;
}
{ visit(normal.mean), visit(normal.std), visit(normal.seed); }

template <typename... Alternatives>
void write_variant(MessageWriter& writer, const std::variant<Alternatives...>& variant) {
  writer.fields().write(static_cast<uint8_t>(variant.index()));
  const auto write_field = [&](const auto& field) {
    if constexpr (std::is_same_v<std::decay_t<decltype(field)>, bool>) {
      writer.write_bool(field);
    } else {
      writer.fields().write(field);
    }
  };
  std::visit([&](const auto& chosen) { visit_fields(chosen, write_field); }, variant);
}

template <typename Variant>
Variant read_variant(MessageReader& reader, const char* what) {
  const size_t index = reader.read_choice(std::variant_size_v<Variant>, what);
  const auto read_field = [&](auto& field) {
    using Field = std::decay_t<decltype(field)>;
    if constexpr (std::is_same_v<Field, bool>) {
      field = reader.read_bool();
    } else if constexpr (std::is_same_v<Field, double>) {
      field = reader.fields().read_double();
    } else {
      field = reader.fields().read<Field>();
    }
  };
  Variant variant;
  [&]<size_t... I>(std::index_sequence<I...>) {
    ((I == index ? visit_fields(variant.template emplace<I>(), read_field) : void()), ...);
  }
  (std::make_index_sequence<std::variant_size_v<Variant>>());
  return variant;
}

// The requests. Each one's number is its index in the variant.

void write_request(MessageWriter& writer, const CreateShard& request) {
  writer.fields().write_text(request.shard);
  writer.fields().write_text(request.variable);
  writer.fields().write(request.rows.begin);
  writer.fields().write(request.rows.end);
  write_variant(writer, request.rule);
  writer.write_bool(request.initial.has_value());
  if (request.initial) write_variant(writer, *request.initial);
  writer.fields().write(request.filter.min_frequency);
  writer.fields().write(request.filter.steps_to_live);
  writer.write_bool(request.growth.has_value());
  if (request.growth) {
    writer.fields().write(request.growth->max_bytes);
    writer.fields().write(static_cast<int64_t>(request.growth->num_bits));
    writer.write_bool(request.growth->takes_numbered_rows);
  }
  writer.write_tensor(request.values);
}

void write_rows(MessageWriter& writer, const at::Tensor& rows) {
  writer.write_bool(rows.defined());
  if (rows.defined()) writer.write_tensor(rows);
}

at::Tensor read_rows(MessageReader& reader) {
  return reader.read_bool() ? reader.read_tensor() : at::Tensor();
}

void write_request(MessageWriter& writer, const PullShards& request) {
  writer.write_count(request.parts.size());
  for (const auto& part : request.parts) {
    writer.fields().write_text(part.shard);
    write_rows(writer, part.rows);
  }
}

void write_parts(MessageWriter& writer, const std::vector<PushShards::Part>& parts) {
  writer.write_count(parts.size());
  for (const auto& part : parts) {
    writer.fields().write_text(part.shard);
    writer.fields().write(part.lr);
    writer.fields().write(part.version);
    write_rows(writer, part.rows);
    writer.write_tensor(part.gradient);
  }
}

std::vector<PushShards::Part> read_parts(MessageReader& reader) {
  std::vector<PushShards::Part> parts(reader.read_count(4 + 8 + 8 + 1));
  for (auto& part : parts) {
    part.shard = reader.fields().read_text();
    part.lr = reader.fields().read_double();
    part.version = reader.fields().read<uint64_t>();
    part.rows = read_rows(reader);
    part.gradient = reader.read_tensor();
  }
  return parts;
}

void write_request(MessageWriter& writer, const PushShards& request) {
  writer.fields().write(request.id.closure);
  writer.fields().write(request.id.number);
  write_parts(writer, request.parts);
}

void write_request(MessageWriter& writer, const ContributeShards& request) {
  writer.fields().write(request.step);
  writer.fields().write(request.slot);
  writer.write_bool(request.is_last);
  write_parts(writer, request.parts);
}

void write_request(MessageWriter& writer, const CommitStep& request) {
  writer.fields().write(request.step);
  writer.fields().write(request.num_slots);
}

void write_request(MessageWriter& writer, const ForgetPushes& request) {
  writer.fields().write(request.before_closure);
}

void write_request(MessageWriter& writer, const SaveShards& request) {
  writer.fields().write_text(request.folder);
}

void write_request(MessageWriter&, const EndServing&) {}

CreateShard read_create(MessageReader& reader) {
  CreateShard request;
  request.shard = reader.fields().read_text();
  request.variable = reader.fields().read_text();
  request.rows.begin = reader.fields().read<int64_t>();
  request.rows.end = reader.fields().read<int64_t>();
  request.rule = read_variant<UpdateRule>(reader, "the number of an update rule");
  if (reader.read_bool())
    request.initial = read_variant<InitialValues>(reader, "the number of initial values");
  request.filter.min_frequency = reader.fields().read<int64_t>();
  request.filter.steps_to_live = reader.fields().read<int64_t>();
  if (reader.read_bool()) {
    const auto max_bytes = reader.fields().read<int64_t>();
    const auto num_bits = std::clamp<int64_t>(reader.fields().read<int64_t>(), -1, 64);
    request.growth = RowGrowth{.max_bytes = max_bytes,
                               .num_bits = static_cast<int>(num_bits),
                               .takes_numbered_rows = reader.read_bool()};
  }
  request.values = reader.read_tensor();
  return request;
}

PullShards read_pull(MessageReader& reader) {
  PullShards request;
  request.parts.resize(reader.read_count(4 + 1));
  for (auto& part : request.parts) {
    part.shard = reader.fields().read_text();
    part.rows = read_rows(reader);
  }
  return request;
}

PushShards read_push(MessageReader& reader) {
  PushShards request;
  request.id.closure = reader.fields().read<uint64_t>();
  request.id.number = reader.fields().read<uint64_t>();
  request.parts = read_parts(reader);
  return request;
}

ContributeShards read_contribution(MessageReader& reader) {
  ContributeShards request;
  request.step = reader.fields().read<uint64_t>();
  request.slot = reader.fields().read<uint32_t>();
  request.is_last = reader.read_bool();
  request.parts = read_parts(reader);
  return request;
}

CommitStep read_commit(MessageReader& reader) {
  CommitStep request;
  request.step = reader.fields().read<uint64_t>();
  request.num_slots = reader.fields().read<uint32_t>();
  return request;
}

ParameterRequest read_request(MessageReader& reader) {
  switch (reader.read_choice(std::variant_size_v<ParameterRequest>, "the number of a request")) {
    case 0:
      return read_create(reader);
    case 1:
      return read_pull(reader);
    case 2:
      return read_push(reader);
    case 3:
      return ForgetPushes{reader.fields().read<uint64_t>()};
    case 4:
      return SaveShards{reader.fields().read_text()};
    case 5:
      return read_contribution(reader);
    case 6:
      return read_commit(reader);
    default:
      return EndServing{};
  }
}

}  // namespace

RpcMessage encode_request(const ParameterRequest& request) {
  MessageWriter writer;
  writer.fields().write(static_cast<uint8_t>(request.index()));
  std::visit([&](const auto& fields) { write_request(writer, fields); }, request);
  return writer.take();
}

ParameterRequest decode_request(const RpcMessage& message) {
  MessageReader reader(message);
  auto request = read_request(reader);
  reader.check_end();
  return request;
}

RpcMessage encode_created(const CreatedShard& created) {
  MessageWriter writer;
  writer.fields().write(static_cast<uint8_t>(created.origin));
  writer.fields().write_text(created.source);
  return writer.take();
}

CreatedShard decode_created(const RpcMessage& message) {
  MessageReader reader(message);
  CreatedShard created;
  created.origin = static_cast<ShardOrigin>(reader.read_choice(3, "the origin of a shard"));
  created.source = reader.fields().read_text();
  reader.check_end();
  return created;
}

RpcMessage encode_pulled(const std::vector<ParameterShard::Pulled>& pulled) {
  MessageWriter writer;
  writer.write_count(pulled.size());
  for (const auto& part : pulled) {
    writer.fields().write(part.version);
    writer.write_tensor(part.values);
  }
  return writer.take();
}

std::vector<ParameterShard::Pulled> decode_pulled(const RpcMessage& message) {
  MessageReader reader(message);
  std::vector<ParameterShard::Pulled> pulled(reader.read_count(8));
  for (auto& part : pulled) {
    part.version = reader.fields().read<uint64_t>();
    part.values = reader.read_tensor();
  }
  reader.check_end();
  return pulled;
}

RpcMessage encode_pushed(const std::vector<PushResult>& results) {
  MessageWriter writer;
  writer.write_count(results.size());
  for (const auto& result : results) {
    writer.fields().write(static_cast<uint8_t>(result.outcome));
    writer.fields().write(result.version);
    writer.fields().write(result.staleness);
  }
  return writer.take();
}

std::vector<PushResult> decode_pushed(const RpcMessage& message) {
  MessageReader reader(message);
  std::vector<PushResult> results(reader.read_count(1 + 8 + 8));
  for (auto& result : results) {
    result.outcome = static_cast<PushOutcome>(reader.read_choice(3, "the outcome of a push"));
    result.version = reader.fields().read<uint64_t>();
    result.staleness = reader.fields().read<uint64_t>();
  }
  reader.check_end();
  return results;
}

RpcMessage encode_committed(const std::vector<uint32_t>& missing) {
  MessageWriter writer;
  writer.write_count(missing.size());
  for (const auto slot : missing) writer.fields().write(slot);
  return writer.take();
}

std::vector<uint32_t> decode_committed(const RpcMessage& message) {
  MessageReader reader(message);
  std::vector<uint32_t> missing(reader.read_count(4));
  for (auto& slot : missing) slot = reader.fields().read<uint32_t>();
  reader.check_end();
  return missing;
}

RpcMessage encode_saved(const std::string& text) {
  MessageWriter writer;
  writer.fields().write_text(text);
  return writer.take();
}

std::string decode_saved(const RpcMessage& message) {
  MessageReader reader(message);
  auto text = reader.fields().read_text();
  reader.check_end();
  return text;
}

}  // namespace lockstep
