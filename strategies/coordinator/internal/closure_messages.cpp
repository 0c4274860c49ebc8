#include "lockstep/strategies/coordinator/internal/closure_messages.h"

#include <c10/util/StringUtil.h>

#include <cstring>
#include <type_traits>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/little_endian.h"
#include "lockstep/runtime/base/net/message_authentication.h"
#include "lockstep/runtime/rpc/rpc_error.h"

namespace lockstep {
namespace {

class ClosureWriter {
 public:
  template <typename Integer>
  void write(Integer value) {
    fields_.write(value);
  }
  void write_text(const std::string& text) { fields_.write_text(text); }
  void write_values(const ClosureValues& values) {
    check_closure_values(values);
    fields_.write(static_cast<uint32_t>(values.size()));
    for (const auto& value : values) {
      fields_.write(static_cast<uint8_t>(value.index()));
      std::visit([this](const auto& stored) { write_value(stored); }, value);
    }
  }
  RpcMessage take() { return {.fields = fields_.take(), .tensors = std::move(tensors_)}; }

 private:
  void write_value(bool value) { fields_.write(static_cast<uint8_t>(value)); }
  void write_value(int64_t value) { fields_.write(value); }
  void write_value(double value) { fields_.write(value); }
  void write_value(const std::string& value) { fields_.write_text(value); }
  void write_value(const torch::Tensor& value) { tensors_.push_back(value.detach().to(torch::kCPU)); }

  LittleEndianWriter fields_;
  std::vector<torch::Tensor> tensors_;
};

class ClosureReader {
 public:
  explicit ClosureReader(const RpcMessage& message) : fields_(message.fields), tensors_(message.tensors) {}

  template <typename Integer>
  Integer read() {
    return fields_.read<Integer>();
  }
  uint8_t read_choice(uint8_t count, const char* what) {
    const auto value = fields_.read<uint8_t>();
    if (value >= count)
      throw InvalidArgument(c10::str("expected ", what, ", but got ", static_cast<int>(value)));
    return value;
  }
  std::string read_text() { return fields_.read_text(); }
  /// Reads the count of elements that take `least_bytes` or more each.
  uint32_t read_count(size_t least_bytes, const char* what) {
    const auto count = fields_.read<uint32_t>();
    if (count > fields_.num_left() / least_bytes)
      throw InvalidArgument(
          c10::str("expected ", count, " ", what, ", but got ", fields_.num_left(), " bytes"));
    return count;
  }
  ClosureValues read_values() {
    const auto count = read_count(1, "values");
    ClosureValues values;
    for (uint32_t i = 0; i < count; ++i) values.push_back(read_value());
    return values;
  }
  void check_end() const {
    if (fields_.num_left() > 0 || next_ != tensors_.size())
      throw InvalidArgument(c10::str("expected nothing more in the message, but got ", fields_.num_left(),
                                     " bytes and ", tensors_.size() - next_, " tensors"));
  }

 private:
  ClosureValue read_value() {
    switch (read_choice(std::variant_size_v<ClosureValue>, "the kind of a closure's value")) {
      case 0:
        return read_choice(2, "0 or 1") == 1;
      case 1:
        return fields_.read<int64_t>();
      case 2:
        return fields_.read_double();
      case 3:
        return fields_.read_text();
      default:
        if (next_ == tensors_.size())
          throw InvalidArgument(c10::str("expected more than ", next_, " tensors in the message"));
        return tensors_[next_++];
    }
  }

  LittleEndianReader fields_;
  const std::vector<torch::Tensor>& tensors_;
  size_t next_ = 0;
};

std::exception_ptr error_in(const std::string& bytes, const std::string& prefix) {
  try {
    throw_error({.fields = {bytes.begin(), bytes.end()}, .tensors = {}}, prefix);
  } catch (...) {
    return std::current_exception();
  }
}

void write_worker_request(ClosureWriter& writer, const AskForClosure& request) {
  writer.write(request.session);
  writer.write_text(request.worker);
  writer.write(request.coordinator);
  writer.write(static_cast<uint32_t>(request.held.size()));
  for (const uint64_t closure : request.held) writer.write(closure);
}

void write_worker_request(ClosureWriter& writer, const ReportEnd& request) {
  const auto& [coordinator, closure, results, error] = request.ended;
  writer.write(request.session);
  writer.write_text(request.worker);
  writer.write(coordinator);
  writer.write(closure);
  writer.write(static_cast<uint8_t>(error != nullptr));
  if (error) {
    const auto bytes = encode_error(error).fields;
    writer.write_text({bytes.begin(), bytes.end()});
  } else {
    writer.write_values(results);
  }
}

void write_worker_request(ClosureWriter& writer, const WorkerBeat& request) {
  writer.write(request.session);
  writer.write_text(request.worker);
}

void write_worker_request(ClosureWriter& writer, const LeaveJob& request) {
  writer.write(request.session);
}

AskForClosure read_ask(ClosureReader& reader) {
  AskForClosure request;
  request.session = reader.read<uint64_t>();
  request.worker = reader.read_text();
  request.coordinator = reader.read<uint64_t>();
  const auto count = reader.read_count(sizeof(uint64_t), "closures");
  for (uint32_t i = 0; i < count; ++i) request.held.push_back(reader.read<uint64_t>());
  return request;
}

WorkerBeat read_beat(ClosureReader& reader) {
  WorkerBeat request;
  request.session = reader.read<uint64_t>();
  request.worker = reader.read_text();
  return request;
}

ReportEnd read_report(ClosureReader& reader) {
  ReportEnd request;
  request.session = reader.read<uint64_t>();
  request.worker = reader.read_text();
  auto& ended = request.ended;
  ended.coordinator = reader.read<uint64_t>();
  ended.closure = reader.read<uint64_t>();
  if (reader.read_choice(2, "0 or 1") == 1) {
    ended.error = error_in(reader.read_text(), request.worker + ": ");
  } else {
    ended.results = reader.read_values();
  }
  return request;
}

}  // namespace

uint64_t new_session() {
  uint64_t session = 0;
  const auto bytes = random_bytes();
  std::memcpy(&session, bytes.data(), sizeof(session));
  return session;
}

void check_closure_values(const ClosureValues& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const auto* tensor = std::get_if<torch::Tensor>(&values[i]);
    if (tensor && (!tensor->defined() || tensor->layout() != torch::kStrided))
      throw InvalidArgument(c10::str("closure: expected a dense tensor as value ", i, ", but got ",
                                     tensor->defined() ? tensor->toString() : "an undefined one"));
  }
}

RpcMessage encode_worker_request(const WorkerRequest& request) {
  ClosureWriter writer;
  writer.write(static_cast<uint8_t>(request.index()));
  std::visit([&](const auto& fields) { write_worker_request(writer, fields); }, request);
  return writer.take();
}

WorkerRequest decode_worker_request(const RpcMessage& message) {
  ClosureReader reader(message);
  WorkerRequest request;
  switch (reader.read_choice(std::variant_size_v<WorkerRequest>, "the number of a worker's request")) {
    case 0:
      request = read_ask(reader);
      break;
    case 1:
      request = read_report(reader);
      break;
    case 2:
      request = read_beat(reader);
      break;
    default:
      request = LeaveJob{reader.read<uint64_t>()};
  }
  reader.check_end();
  return request;
}

RpcMessage encode_given(const GivenClosure& given) {
  ClosureWriter writer;
  writer.write(static_cast<uint8_t>(given.kind));
  writer.write(given.coordinator);
  writer.write(given.closure);
  writer.write_text(given.function);
  writer.write_values(given.arguments);
  return writer.take();
}

GivenClosure decode_given(const RpcMessage& message) {
  ClosureReader reader(message);
  GivenClosure given;
  given.kind = static_cast<GivenClosure::Kind>(reader.read_choice(3, "the kind of an answer"));
  given.coordinator = reader.read<uint64_t>();
  given.closure = reader.read<uint64_t>();
  given.function = reader.read_text();
  given.arguments = reader.read_values();
  reader.check_end();
  return given;
}

}  // namespace lockstep
