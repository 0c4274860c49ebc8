#include "lockstep/runtime/rpc/rpc_error.h"

#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/little_endian.h"
#include "lockstep/runtime/devices/error_text.h"

namespace lockstep {
namespace {

enum class ErrorClass : uint8_t {
  kOther = 0,
  kInvalidArgument = 1,
  kCluster = 2,
  kOutOfMemory = 3,
  kSystem = 4,
  kPeerLost = 5,
};

ErrorClass class_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const InvalidArgument&) {
    return ErrorClass::kInvalidArgument;
  } catch (const PeerLost&) {
    return ErrorClass::kPeerLost;
  } catch (const ClusterError&) {
    return ErrorClass::kCluster;
  } catch (const OutOfMemory&) {
    return ErrorClass::kOutOfMemory;
  } catch (const std::bad_alloc&) {
    return ErrorClass::kOutOfMemory;
  } catch (const std::system_error&) {
    return ErrorClass::kSystem;
  } catch (...) {
    return ErrorClass::kOther;
  }
}

/// Returns the system error's number, and removes its message from the text: a rethrow adds it.
int take_system_error(const std::exception_ptr& error, std::string& text) {
  try {
    std::rethrow_exception(error);
  } catch (const std::system_error& system) {
    const std::string meaning = ": " + system.code().message();
    if (text.ends_with(meaning)) text.resize(text.size() - meaning.size());
    return system.code().value();
  }
}

}  // namespace

RpcMessage encode_error(const std::exception_ptr& error) {
  LittleEndianWriter writer;
  const ErrorClass kind = class_of(error);
  std::string text = error_line(error);
  writer.write(static_cast<uint8_t>(kind));
  if (kind == ErrorClass::kSystem) writer.write(static_cast<int32_t>(take_system_error(error, text)));
  writer.write_text(text);
  return {.fields = writer.take()};
}

void throw_error(const RpcMessage& message, const std::string& prefix) {
  LittleEndianReader reader(message.fields);
  const auto kind = static_cast<ErrorClass>(reader.read<uint8_t>());
  const int code = kind == ErrorClass::kSystem ? reader.read<int32_t>() : 0;
  const auto text = prefix + reader.read_text();
  switch (kind) {
    case ErrorClass::kInvalidArgument:
      throw InvalidArgument(text);
    case ErrorClass::kPeerLost:
      throw PeerLost(text);
    case ErrorClass::kCluster:
      throw ClusterError(text);
    case ErrorClass::kOutOfMemory:
      throw OutOfMemory(text);
    case ErrorClass::kSystem:
      throw std::system_error(code, std::generic_category(), text);
    case ErrorClass::kOther:
      break;
  }
  throw std::runtime_error(text);
}

}  // namespace lockstep
