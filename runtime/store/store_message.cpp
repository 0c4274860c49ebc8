#include "lockstep/runtime/store/store_message.h"

#include <string_view>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/little_endian.h"

namespace lockstep {
namespace {

constexpr size_t kSizeBytes = 4;
// Of a text in a message: its own size.
constexpr size_t kLeastTextBytes = 4;

[[noreturn]] void refuse_size(size_t size) {
  throw InvalidArgument("[store] expected a message of at most " + std::to_string(kMaxStoreMessageBytes) +
                        " bytes, but got one of " + std::to_string(size));
}

void write_texts(LittleEndianWriter& writer, const std::vector<std::string>& texts) {
  writer.write(static_cast<uint32_t>(texts.size()));
  for (const auto& text : texts) writer.write_text(text);
}

std::vector<std::string> read_texts(LittleEndianReader& reader) {
  const auto count = reader.read<uint32_t>();
  // Before any memory is allocated for them.
  if (count > reader.num_left() / kLeastTextBytes)
    throw InvalidArgument("[store] expected " + std::to_string(count) + " texts, but got " +
                          std::to_string(reader.num_left()) + " bytes");
  std::vector<std::string> texts;
  texts.reserve(count);
  for (uint32_t i = 0; i < count; ++i) texts.push_back(reader.read_text());
  return texts;
}

template <typename Enum>
Enum read_enum(LittleEndianReader& reader, Enum last, std::string_view what) {
  const auto number = reader.read<uint8_t>();
  if (number > static_cast<uint8_t>(last))
    throw InvalidArgument("[store] expected a known " + std::string(what) + ", but got " +
                          std::to_string(number));
  return static_cast<Enum>(number);
}

void expect_end(const LittleEndianReader& reader) {
  if (reader.num_left() > 0)
    throw InvalidArgument("[store] expected the message's end, but got " + std::to_string(reader.num_left()) +
                          " bytes more");
}

std::vector<uint8_t> with_size(const LittleEndianWriter& body) {
  if (body.bytes().size() > kMaxStoreMessageBytes) refuse_size(body.bytes().size());
  LittleEndianWriter message;
  message.write(static_cast<uint32_t>(body.bytes().size()));
  auto bytes = message.take();
  bytes.insert(bytes.end(), body.bytes().begin(), body.bytes().end());
  return bytes;
}

}  // namespace

std::vector<uint8_t> encode(const StoreRequest& request) {
  LittleEndianWriter writer;
  writer.write(request.id);
  writer.write(static_cast<uint8_t>(request.op));
  writer.write(request.number);
  write_texts(writer, request.keys);
  write_texts(writer, request.values);
  write_texts(writer, request.unless);
  return with_size(writer);
}

std::vector<uint8_t> encode(const StoreReply& reply) {
  LittleEndianWriter writer;
  writer.write(reply.id);
  writer.write(static_cast<uint8_t>(reply.status));
  writer.write(reply.number);
  write_texts(writer, reply.values);
  return with_size(writer);
}

StoreRequest decode_store_request(std::span<const uint8_t> bytes) {
  LittleEndianReader reader(bytes);
  StoreRequest request;
  request.id = reader.read<uint64_t>();
  request.op = read_enum(reader, StoreOp::kCancel, "request");
  request.number = reader.read<int64_t>();
  request.keys = read_texts(reader);
  request.values = read_texts(reader);
  request.unless = read_texts(reader);
  expect_end(reader);
  return request;
}

StoreReply decode_store_reply(std::span<const uint8_t> bytes) {
  LittleEndianReader reader(bytes);
  StoreReply reply;
  reply.id = reader.read<uint64_t>();
  reply.status = read_enum(reader, StoreStatus::kRefused, "status");
  reply.number = reader.read<int64_t>();
  reply.values = read_texts(reader);
  expect_end(reader);
  return reply;
}

void StoreMessageReader::add(std::span<const uint8_t> bytes) {
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(begin_));
  begin_ = 0;
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

std::optional<std::span<const uint8_t>> StoreMessageReader::next() {
  const auto rest = std::span<const uint8_t>(bytes_).subspan(begin_);
  if (rest.size() < kSizeBytes) return std::nullopt;
  const auto size = LittleEndianReader(rest).read<uint32_t>();
  if (size > kMaxStoreMessageBytes) refuse_size(size);
  if (rest.size() - kSizeBytes < size) return std::nullopt;
  begin_ += kSizeBytes + size;
  return rest.subspan(kSizeBytes, size);
}

}  // namespace lockstep
