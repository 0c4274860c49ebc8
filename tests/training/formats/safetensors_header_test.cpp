#include "lockstep/training/formats/internal/safetensors_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/tests/support/checkpoint_files.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kHeaderFile = "weights.safetensors";

std::string header_entry(const std::string& name, const std::string& dtype, const std::string& shape,
                         const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets +
         "}";
}

std::string header_refusal(const std::string& json, uint64_t data_size = 8) {
  return error_of<CheckpointError>([&] { parse_safetensors_header(json, data_size, kHeaderFile); });
}

TEST(SafetensorsHeaderTest, ReadsTheExampleOfTheFormat) {
  const auto header = parse_safetensors_header("{" + header_entry("b", "F16", "[2,3]", "[4,16]") +
                                                   ",\"__metadata__\":{\"format\":\"pt\"}," +
                                                   header_entry("a", "I32", "[]", "[0,4]") + "," +
                                                   header_entry("empty", "F64", "[0,7]", "[16,16]") + "}   ",
                                               16, kHeaderFile);
  ASSERT_EQ(header.tensors.size(), 3U);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_THAT(header.tensors[0].shape, ElementsAre());
  EXPECT_EQ(header.tensors[1].name, "b");
  EXPECT_EQ(header.tensors[1].dtype, "F16");
  EXPECT_THAT(header.tensors[1].shape, ElementsAre(2, 3));
  EXPECT_EQ(header.tensors[1].begin, 4U);
  EXPECT_EQ(header.tensors[1].end, 16U);
  EXPECT_THAT(header.metadata, ElementsAre(std::pair("format", "pt")));
}

TEST(SafetensorsHeaderTest, RefusesWhatIsNoHeader) {
  for (const char* json : {"", "[]", "null", "{", "{}}", "{\"a\":", "{\"a\xff\":{}}", " {}", "{\"a\":1e999}"})
    EXPECT_THAT(header_refusal(json, 0), StartsWith("weights.safetensors: header: expected ")) << json;
}

TEST(SafetensorsHeaderTest, RefusesUnexpectedKindsOfValuesByName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"w":1})", "header: expected an object for 'w', but got 1"},
      {R"({"w":null})", "but got null"},
      {R"({"w":[]})", "but got an array"},
      {R"({"w":{}})", "tensor 'w': expected a dtype, but got none"},
      {R"({"w":{"dtype":"F32","shape":[2]}})", "tensor 'w': expected a data_offsets, but got none"},
      {R"({"w":{"dtype":7}})", "tensor 'w': expected a string for dtype, but got 7"},
      {R"({"w":{"shape":"7"}})", "tensor 'w': expected an array for shape, but got '7'"},
      {R"({"w":{"shape":[[7]]}})", "tensor 'w': expected sizes in shape, but got an array"},
      {R"({"w":{"shape":[-1]}})", "but got -1"},
      {R"({"w":{"shape":[1.5]}})", "but got 1.5"},
      {R"({"w":{"shape":[true]}})", "but got a truth value"},
      {R"({"w":{"shape":[9223372036854775808]}})", "but got 9223372036854775808"},
      {R"({"w":{"shape":[99999999999999999999]}})", "but got 99999999999999999999"},
      {R"({"w":{"data_offsets":[0,1,2]}})", "expected two data_offsets, but got more"},
      {R"({"w":{"strides":[1]}})", "but got the key 'strides'"},
      {R"({"__metadata__":{"format":1}})", "__metadata__: expected a string for 'format', but got 1"},
      {R"({"__metadata__":{"format":{}}})",
       "__metadata__: expected a string for 'format', but got an object"},
      {"{" + header_entry("w", "F4", "[2]", "[0,8]") + "}",
       "tensor 'w': expected a dtype that LibTorch has, but got 'F4'"},
      {"{" + header_entry("w", "F32", "[2]", "[0]") + "}", "expected two data_offsets, but got 1"},
  };
  for (const auto& [json, message] : cases) EXPECT_THAT(header_refusal(json), HasSubstr(message)) << json;
}

TEST(SafetensorsHeaderTest, RefusesNamesThatAreGivenTwice) {
  EXPECT_THAT(header_refusal("{" + header_entry("w", "U8", "[4]", "[0,4]") + "," +
                             header_entry("w", "U8", "[4]", "[4,8]") + "}"),
              HasSubstr("header: expected each key once, but got 'w' twice"));
  EXPECT_THAT(header_refusal(R"({"w":{"dtype":"F32","dtype":"F64"}})"), HasSubstr("'dtype' twice"));
  EXPECT_THAT(header_refusal(R"({"__metadata__":{"a":"1","a":"2"}})"), HasSubstr("'a' twice"));
  EXPECT_THAT(header_refusal(R"({"__metadata__":{},"__metadata__":{}})"), HasSubstr("'__metadata__' twice"));
}

TEST(SafetensorsHeaderTest, RefusesOffsetsThatDoNotFitDtypeAndShape) {
  for (const char* offsets : {"[0,7]", "[0,9]", "[8,0]", "[18446744073709551615,7]"}) {
    EXPECT_THAT(header_refusal("{" + header_entry("w", "F32", "[2]", offsets) + "}"),
                HasSubstr("tensor 'w': expected data_offsets 8 bytes apart"))
        << offsets;
  }
}

TEST(SafetensorsHeaderTest, RefusesOverlapsHolesAndBytesLeftOver) {
  const auto two = [](const char* first, const char* second) {
    return "{" + header_entry("v", "U8", "[4]", first) + "," + header_entry("w", "U8", "[4]", second) + "}";
  };
  EXPECT_EQ(header_refusal(two("[0,4]", "[4,8]")), "no error");
  EXPECT_THAT(header_refusal(two("[0,4]", "[3,7]")), HasSubstr("tensor 'w': expected bytes from 4 on"));
  EXPECT_THAT(header_refusal(two("[0,4]", "[0,4]")), HasSubstr("tensor 'w': expected bytes from 4 on"));
  EXPECT_THAT(header_refusal(two("[0,4]", "[5,9]"), 9), HasSubstr("tensor 'w': expected bytes from 4 on"));
  EXPECT_THAT(header_refusal(two("[1,5]", "[5,9]"), 9), HasSubstr("tensor 'v': expected bytes from 0 on"));
  EXPECT_THAT(header_refusal(two("[0,4]", "[4,8]"), 9),
              HasSubstr("file size: expected 8 bytes of tensors, but got 9"));
  EXPECT_THAT(header_refusal(two("[0,4]", "[4,8]"), 7),
              HasSubstr("file size: expected 8 bytes of tensors, but got 7"));
}

TEST(SafetensorsHeaderTest, RefusesSizesThatOverflow) {
  for (const char* shape : {"[4294967296,4294967296]", "[0,4294967296,4294967296]", "[9223372036854775807]",
                            "[4611686018427387904,0,2]"}) {
    EXPECT_THAT(header_refusal("{" + header_entry("w", "F32", shape, "[0,0]") + "}", 0),
                HasSubstr("tensor 'w': expected a shape that can be counted"))
        << shape;
  }
}

TEST(SafetensorsHeaderTest, RefusesMoreDimensionsThanOperatorsTake) {
  const auto shape = [](size_t dimensions) {
    std::string text = "[1";
    for (size_t i = 1; i < dimensions; ++i) text += ",1";
    return text + "]";
  };
  EXPECT_EQ(header_refusal("{" + header_entry("w", "U8", shape(64), "[0,1]") + "}", 1), "no error");
  EXPECT_THAT(header_refusal("{" + header_entry("w", "U8", shape(65), "[0,1]") + "}", 1),
              HasSubstr("at most 64 dimensions"));
}

TEST(SafetensorsHeaderTest, ShortensHostileNamesInMessages) {
  const auto message =
      header_refusal("{" + header_entry(std::string(100'000, 'w') + "\\n", "F32", "[2]", "[0,1]") + "}");
  EXPECT_LT(message.size(), 400U);
  EXPECT_THAT(header_refusal("{" + header_entry("a\\u001b[2J", "F32", "[2]", "[0,1]") + "}"),
              HasSubstr("tensor 'a\\x1b[2J'"));
}

TEST(SafetensorsHeaderTest, DeepNestingIsRefusedBeforeItGrows) {
  EXPECT_THAT(header_refusal("{\"w\":" + std::string(1'000'000, '[')),
              HasSubstr("header: expected an object for 'w'"));
}

TEST(SafetensorsHeaderTest, LengthsBeyondTheFileOrTheLimitAreRefused) {
  using Length = std::array<unsigned char, kSafetensorsLengthBytes>;
  EXPECT_EQ(read_safetensors_length(Length{0x10, 0x02}.data(), 0x218, kHeaderFile), 0x210U);
  const auto refused = [](const Length& length, uint64_t file_size) {
    return error_of<CheckpointError>([&] { read_safetensors_length(length.data(), file_size, kHeaderFile); });
  };
  EXPECT_THAT(refused({0x11, 0x02}, 0x218),
              AllOf(StartsWith("weights.safetensors: "), HasSubstr("528"), HasSubstr("529")));
  EXPECT_THAT(refused({1}, 8), HasSubstr("at most the file's other 0 bytes, but got 1"));
  EXPECT_THAT(refused({0x01, 0xe1, 0xf5, 0x05}, 1ULL << 40),
              HasSubstr("at most 100000000 bytes, but got 100000001"));
  Length all;
  all.fill(0xff);
  EXPECT_THAT(refused(all, 1ULL << 40), HasSubstr("but got 18446744073709551615"));
}

/// A damaged header is refused, or still describes tensors that fill the file.
TEST(SafetensorsHeaderTest, DamagedHeadersAreRefusedOrStillCoverTheFile) {
  const std::string whole = "{" + header_entry("v", "F32", "[2,3]", "[0,24]") + "," +
                            header_entry("w", "I64", "[2]", "[24,40]") + ",\"__metadata__\":{\"k\":\"v\"}}";
  std::mt19937_64 random(1);
  int num_refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string json = whole;
    for (uint64_t changes = random() % 3 + 1; changes > 0; --changes)
      json[random() % json.size()] =
          static_cast<char>(random() % 2 == 0 ? random() : "0123456789[]{},:\""[random() % 17]);
    try {
      uint64_t next = 0;
      for (const auto& tensor : parse_safetensors_header(json, 40, kHeaderFile).tensors) {
        ASSERT_EQ(tensor.begin, next);
        next = tensor.end;
      }
      ASSERT_EQ(next, 40U);
    } catch (const CheckpointError&) {
      ++num_refused;
    }
  }
  EXPECT_GT(num_refused, 10'000);
}

TEST(SafetensorsHeaderTest, WrittenHeadersAreAlignedAndReadBack) {
  const auto placed = place_safetensors({{.name = "flag", .dtype = "BOOL", .shape = {3}},
                                         {.name = "b", .dtype = "F32", .shape = {2, 2}},
                                         {.name = "a", .dtype = "F32", .shape = {}},
                                         {.name = "big", .dtype = "I64", .shape = {1}}},
                                        {{"format", "pt"}, {"note", "\"quoted\" \xc3\xa9\n"}});
  const std::string bytes = write_safetensors_header(placed);
  EXPECT_EQ(bytes.size() % 8, 0U);
  const uint64_t length = read_safetensors_length(reinterpret_cast<const unsigned char*>(bytes.data()),
                                                  bytes.size() + 31, kHeaderFile);
  EXPECT_EQ(length, bytes.size() - 8);
  const auto read = parse_safetensors_header(bytes.substr(8), 31, kHeaderFile);
  std::vector<std::string> names;
  for (const auto& tensor : read.tensors) {
    names.push_back(tensor.name);
    EXPECT_EQ(tensor.begin % *safetensors_element_size(tensor.dtype), 0U) << tensor.name;
  }
  EXPECT_THAT(names, ElementsAre("big", "a", "b", "flag"));
  EXPECT_EQ(read.metadata, placed.metadata);
}

TEST(SafetensorsHeaderTest, TheWriterRefusesNamesThatTheFormatLacks) {
  const auto refused = [](std::vector<SafetensorsEntry> entries,
                          std::map<std::string, std::string> metadata = {}) {
    return error_of<InvalidArgument>(
        [&] { write_safetensors_header(place_safetensors(std::move(entries), std::move(metadata))); });
  };
  const SafetensorsEntry tensor{.name = "w", .dtype = "F32", .shape = {1}};
  EXPECT_THAT(refused({tensor, tensor}), HasSubstr("tensor 'w': expected a name for each tensor"));
  EXPECT_THAT(refused({{.name = "__metadata__", .dtype = "F32", .shape = {1}}}), HasSubstr("reserved"));
  EXPECT_THAT(refused({{.name = "a\xff", .dtype = "F32", .shape = {1}}}), HasSubstr("UTF-8"));
  EXPECT_THAT(refused({tensor}, {{"key", "\xc3"}}), HasSubstr("UTF-8"));
  EXPECT_THAT(refused({{.name = "w", .dtype = "F31", .shape = {1}}}), HasSubstr("but got 'F31'"));
}

}  // namespace
}  // namespace lockstep
