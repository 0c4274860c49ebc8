#include "lockstep/training/reporting/tensorboard/internal/protobuf_message.h"

#include <bit>

namespace lockstep {
namespace {

constexpr int kVarint = 0;
constexpr int kFixed64 = 1;
constexpr int kLengthDelimited = 2;

}  // namespace

void ProtobufMessage::add_varint(uint64_t value) {
  constexpr uint64_t kContinued = 0x80;
  for (; value >= kContinued; value >>= 7) encoded_.push_back(static_cast<uint8_t>(value | kContinued));
  encoded_.push_back(static_cast<uint8_t>(value));
}

void ProtobufMessage::add_tag(int field, int wire_type) {
  add_varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire_type));
}

void ProtobufMessage::add_fixed(uint64_t bits, int num_bytes) {
  for (int byte = 0; byte < num_bytes; ++byte) encoded_.push_back(static_cast<uint8_t>(bits >> (8 * byte)));
}

ProtobufMessage& ProtobufMessage::integer(int field, int64_t value) {
  add_tag(field, kVarint);
  add_varint(static_cast<uint64_t>(value));  // negative numbers as their 64 bits
  return *this;
}

ProtobufMessage& ProtobufMessage::number(int field, double value) {
  add_tag(field, kFixed64);
  add_fixed(std::bit_cast<uint64_t>(value), sizeof(value));
  return *this;
}

ProtobufMessage& ProtobufMessage::bytes(int field, std::span<const uint8_t> value) {
  add_tag(field, kLengthDelimited);
  add_varint(value.size());
  encoded_.insert(encoded_.end(), value.begin(), value.end());
  return *this;
}

ProtobufMessage& ProtobufMessage::text(int field, std::string_view value) {
  return bytes(field, std::span(reinterpret_cast<const uint8_t*>(value.data()), value.size()));
}

ProtobufMessage& ProtobufMessage::message(int field, const ProtobufMessage& value) {
  return bytes(field, value.encoded());
}

ProtobufMessage& ProtobufMessage::packed_floats(int field, std::span<const float> values) {
  add_tag(field, kLengthDelimited);
  add_varint(values.size_bytes());
  for (const float value : values) add_fixed(std::bit_cast<uint32_t>(value), sizeof(value));
  return *this;
}

ProtobufMessage& ProtobufMessage::packed_doubles(int field, std::span<const double> values) {
  add_tag(field, kLengthDelimited);
  add_varint(values.size_bytes());
  for (const double value : values) add_fixed(std::bit_cast<uint64_t>(value), sizeof(value));
  return *this;
}

}  // namespace lockstep
