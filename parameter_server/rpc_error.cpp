#include "lockstep/parameter_server/rpc_error.h"

#include <cstdint>
#include <new>
#include <stdexcept>

#include "lockstep/runtime/error_text.h"
#include "lockstep/runtime/errors.h"
#include "lockstep/runtime/little_endian.h"

namespace lockstep {
namespace {

enum class ErrorClass : uint8_t { kOther = 0, kInvalidArgument = 1, kCluster = 2, kOutOfMemory = 3 };

ErrorClass class_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const InvalidArgument&) {
    return ErrorClass::kInvalidArgument;
  } catch (const ClusterError&) {
    return ErrorClass::kCluster;
  } catch (const OutOfMemory&) {
    return ErrorClass::kOutOfMemory;
  } catch (const std::bad_alloc&) {
    return ErrorClass::kOutOfMemory;
  } catch (...) {
    return ErrorClass::kOther;
  }
}

}  // namespace

RpcMessage encode_error(const std::exception_ptr& error) {
  LittleEndianWriter writer;
  writer.write(static_cast<uint8_t>(class_of(error)));
  writer.write_text(error_line(error));
  return {.fields = writer.take()};
}

void throw_error(const RpcMessage& message, const std::string& prefix) {
  LittleEndianReader reader(message.fields);
  const auto number = reader.read<uint8_t>();
  const auto text = prefix + reader.read_text();
  switch (static_cast<ErrorClass>(number)) {
    case ErrorClass::kInvalidArgument:
      throw InvalidArgument(text);
    case ErrorClass::kCluster:
      throw ClusterError(text);
    case ErrorClass::kOutOfMemory:
      throw OutOfMemory(text);
    case ErrorClass::kOther:
      break;
  }
  throw std::runtime_error(text);
}

}  // namespace lockstep
