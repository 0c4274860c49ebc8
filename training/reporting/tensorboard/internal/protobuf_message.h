#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep {

/// A message in the wire format of protocol buffers, written field by field. Its .proto file defines the
/// numbers and types of the fields.
class ProtobufMessage {
 public:
  /// For int32, int64, uint64, bool and enumerations.
  ProtobufMessage& integer(int field, int64_t value);
  ProtobufMessage& number(int field, double value);
  ProtobufMessage& text(int field, std::string_view value);
  ProtobufMessage& bytes(int field, std::span<const uint8_t> value);
  ProtobufMessage& message(int field, const ProtobufMessage& value);
  /// Adds a repeated field in packed form.
  ProtobufMessage& packed_floats(int field, std::span<const float> values);
  ProtobufMessage& packed_doubles(int field, std::span<const double> values);

  const std::vector<uint8_t>& encoded() const { return encoded_; }

 private:
  void add_tag(int field, int wire_type);
  void add_varint(uint64_t value);
  /// Adds the lowest `num_bytes` bytes of `bits`, lowest first.
  void add_fixed(uint64_t bits, int num_bytes);

  std::vector<uint8_t> encoded_;
};

}  // namespace lockstep
