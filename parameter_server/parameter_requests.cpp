#include "lockstep/parameter_server/parameter_requests.h"

#include <c10/util/StringUtil.h>

#include <type_traits>
#include <utility>

#include "lockstep/runtime/errors.h"
#include "lockstep/runtime/little_endian.h"

namespace lockstep {
namespace {

/// Takes a message's fields and tensors in the order in which they were put.
class MessageReader {
 public:
  explicit MessageReader(const RpcMessage& message) : fields_(message.fields), tensors_(message.tensors) {}

  LittleEndianReader& fields() { return fields_; }

  bool read_bool() {
    const auto value = fields_.read<uint8_t>();
    if (value > 1) throw InvalidArgument(c10::str("expected 0 or 1, but got ", static_cast<int>(value)));
    return value == 1;
  }
  at::Tensor read_tensor() {
    if (next_ == tensors_.size())
      throw InvalidArgument(c10::str("expected more than ", next_, " tensors in the message"));
    return tensors_[next_++];
  }
  /// How many of something that takes `min_bytes` each, so that a count takes no memory by itself.
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

// The rules: their fields in the order of their declaration.

template <typename Rule, typename Visit>
void visit_fields(Rule& rule, const Visit& visit) {
  using Bare = std::remove_const_t<Rule>;
  if constexpr (std::is_same_v<Bare, SgdRule>) {
    visit(rule.momentum), visit(rule.dampening), visit(rule.weight_decay), visit(rule.nesterov);
  } else if constexpr (std::is_same_v<Bare, AdagradRule>) {
    visit(rule.lr_decay), visit(rule.weight_decay), visit(rule.initial_accumulator_value), visit(rule.eps);
  } else {
    static_assert(std::is_same_v<Bare, AdamRule>);
    visit(rule.beta1), visit(rule.beta2), visit(rule.eps), visit(rule.weight_decay);
    visit(rule.is_decoupled), visit(rule.amsgrad);
  }
  visit(rule.maximize);
}

void write_rule(MessageWriter& writer, const UpdateRule& rule) {
  writer.fields().write(static_cast<uint8_t>(rule.index()));
  std::visit(
      [&](const auto& fields) {
        visit_fields(fields, [&](const auto& field) {
          if constexpr (std::is_same_v<std::decay_t<decltype(field)>, bool>) {
            writer.write_bool(field);
          } else {
            writer.fields().write(field);
          }
        });
      },
      rule);
}

template <typename Rule>
Rule read_fields(MessageReader& reader) {
  Rule rule;
  visit_fields(rule, [&](auto& field) {
    if constexpr (std::is_same_v<std::decay_t<decltype(field)>, bool>) {
      field = reader.read_bool();
    } else {
      field = reader.fields().read_double();
    }
  });
  return rule;
}

UpdateRule read_rule(MessageReader& reader) {
  switch (const auto number = reader.fields().read<uint8_t>()) {
    case 0:
      return read_fields<SgdRule>(reader);
    case 1:
      return read_fields<AdagradRule>(reader);
    case 2:
      return read_fields<AdamRule>(reader);
    default:
      throw InvalidArgument(
          c10::str("expected the number of an update rule, but got ", static_cast<int>(number)));
  }
}

// The requests; a variant's index is its number.

void write_request(MessageWriter& writer, const CreateShard& request) {
  writer.fields().write_text(request.shard);
  write_rule(writer, request.rule);
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

void write_request(MessageWriter& writer, const PushShards& request) {
  writer.fields().write(request.id.closure);
  writer.fields().write(request.id.number);
  writer.write_count(request.parts.size());
  for (const auto& part : request.parts) {
    writer.fields().write_text(part.shard);
    writer.fields().write(part.lr);
    writer.fields().write(part.version);
    write_rows(writer, part.rows);
    writer.write_tensor(part.gradient);
  }
}

void write_request(MessageWriter& writer, const ForgetPushes& request) {
  writer.fields().write(request.before_closure);
}

CreateShard read_create(MessageReader& reader) {
  CreateShard request;
  request.shard = reader.fields().read_text();
  request.rule = read_rule(reader);
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
  request.parts.resize(reader.read_count(4 + 8 + 8 + 1));
  for (auto& part : request.parts) {
    part.shard = reader.fields().read_text();
    part.lr = reader.fields().read_double();
    part.version = reader.fields().read<uint64_t>();
    part.rows = read_rows(reader);
    part.gradient = reader.read_tensor();
  }
  return request;
}

ParameterRequest read_request(MessageReader& reader) {
  switch (const auto number = reader.fields().read<uint8_t>()) {
    case 0:
      return read_create(reader);
    case 1:
      return read_pull(reader);
    case 2:
      return read_push(reader);
    case 3:
      return ForgetPushes{reader.fields().read<uint64_t>()};
    default:
      throw InvalidArgument(c10::str("expected the number of a request, but got ", static_cast<int>(number)));
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

RpcMessage encode_created(bool is_new) {
  MessageWriter writer;
  writer.write_bool(is_new);
  return writer.take();
}

bool decode_created(const RpcMessage& message) {
  MessageReader reader(message);
  const bool is_new = reader.read_bool();
  reader.check_end();
  return is_new;
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
    writer.write_bool(result.is_applied);
    writer.fields().write(result.version);
    writer.fields().write(result.staleness);
  }
  return writer.take();
}

std::vector<PushResult> decode_pushed(const RpcMessage& message) {
  MessageReader reader(message);
  std::vector<PushResult> results(reader.read_count(1 + 8 + 8));
  for (auto& result : results) {
    result.is_applied = reader.read_bool();
    result.version = reader.fields().read<uint64_t>();
    result.staleness = reader.fields().read<uint64_t>();
  }
  reader.check_end();
  return results;
}

}  // namespace lockstep
