#include "lockstep/training/formats/internal/pickle_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/tests/support/checkpoint_files.h"
#include "lockstep/tests/support/other_process.h"
#include "lockstep/training/formats/internal/pickle_writer.h"

// state_file_python_test.py tests the exchange of such files with Python.

namespace lockstep {
namespace {

using namespace std::string_literals;
using ::testing::HasSubstr;
using ::testing::StartsWith;

PickleValue pickled(const std::string& opcodes) {
  return read_pickle("\x80\x02" + opcodes + ".", "state.pt");
}

std::string pickle_refusal(const std::string& opcodes) {
  return error_of<CheckpointError>([&] { pickled(opcodes); });
}

std::string pickled_text(const std::string& text) {
  std::string bytes = "X";
  for (size_t i = 0; i < 4; ++i) bytes += static_cast<char>(text.size() >> (8 * i));
  return bytes + text;
}

PickleValue every_kind() {
  PickleValue::Dict dict;
  dict.add("none", PickleValue());
  dict.add("numbers", PickleValue::List{true, false, 0, -1, int64_t{1} << 40, INT64_MIN, 1.5, -0.0});
  dict.add(7, PickleValue::Tuple{{"text", std::string("\0x", 2), PickleValue::Tuple{}}});
  dict.add("typed", PickledTensor{.dtype = "bfloat16",
                                  .storage = "0",
                                  .storage_bytes = 12,
                                  .offset = 0,
                                  .shape = {2, 3},
                                  .strides = {1, 2}});
  dict.add("untyped", PickledTensor{.dtype = "uint16", .storage = "1", .storage_bytes = 2});
  dict.add("empty", PickleValue::Dict());
  return dict;
}

TEST(PickleReaderTest, ReadsWhatTheWriterWrites) {
  const PickleValue value = every_kind();
  const std::string bytes = write_pickle(value);
  const PickleValue read = read_pickle(bytes, "state.pt");
  EXPECT_EQ(write_pickle(read), bytes);
  const auto& dict = std::get<PickleValue::Dict>(read.data());
  ASSERT_EQ(dict.entries.size(), 6U);
  const auto& numbers = *dict.find("numbers")->get_if<PickleValue::List>();
  EXPECT_EQ(*numbers[4].get_if<int64_t>(), int64_t{1} << 40);
  EXPECT_EQ(*numbers[5].get_if<int64_t>(), INT64_MIN);
  EXPECT_EQ(*numbers[6].get_if<double>(), 1.5);
  const auto& tuple = *dict.find(7)->get_if<PickleValue::Tuple>();
  EXPECT_EQ(*tuple.items[1].get_if<std::string>(), std::string("\0x", 2));
  const auto& tensor = *dict.find("typed")->get_if<PickledTensor>();
  EXPECT_EQ(tensor.dtype, "bfloat16");
  EXPECT_EQ(tensor.storage_bytes, 12U);
  EXPECT_EQ(tensor.strides, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(dict.find("untyped")->get_if<PickledTensor>()->dtype, "uint16");
}

/// As pickletools describes the opcodes.
TEST(PickleReaderTest, ReadsEachOpcode) {
  EXPECT_EQ(*pickled("K\xff").get_if<int64_t>(), 255);
  EXPECT_EQ(*pickled("M\x01\x02").get_if<int64_t>(), 0x201);
  EXPECT_EQ(*pickled("J\xfe\xff\xff\xff").get_if<int64_t>(), -2);
  EXPECT_EQ(*pickled("\x8a\x00"s).get_if<int64_t>(), 0);
  EXPECT_EQ(*pickled("\x8a\x01\xff").get_if<int64_t>(), -1);
  EXPECT_EQ(*pickled("\x8a\x02\xff\x00"s).get_if<int64_t>(), 255);
  EXPECT_EQ(*pickled("G\xc0\x04\x00\x00\x00\x00\x00\x00"s).get_if<double>(), -2.5);
  EXPECT_EQ(pickled("]K\x01"
                    "a")
                .get_if<PickleValue::List>()
                ->size(),
            1U);
  EXPECT_EQ(pickled("(K\x01K\x02t").get_if<PickleValue::Tuple>()->items.size(), 2U);
  EXPECT_EQ(pickled("K\x01K\x02\x86").get_if<PickleValue::Tuple>()->items.size(), 2U);
  EXPECT_EQ(*pickled("}K\x01K\x02s").get_if<PickleValue::Dict>()->find(1)->get_if<int64_t>(), 2);
  EXPECT_EQ(pickled("ccollections\nOrderedDict\n)R(" + pickled_text("a") + "Nu}b")
                .get_if<PickleValue::Dict>()
                ->entries.size(),
            1U);
}

TEST(PickleReaderTest, AReferenceMeansTheValueAsItBecomes) {
  const auto value = pickled(
      "]q\x01h\x01K\x07"
      "a\x86");
  const auto& items = value.get_if<PickleValue::Tuple>()->items;
  for (const auto& item : items) EXPECT_EQ(item.get_if<PickleValue::List>()->size(), 1U);
}

TEST(PickleReaderTest, RefusesWhatIsNoPickleOfProtocol2) {
  for (const std::string& bytes : {""s, "\x80"s, "\x80\x03N."s, "N."s, "{}"s, "\x80\x02N"s, "\x80\x02."s}) {
    EXPECT_THAT(error_of<CheckpointError>([&] { read_pickle(bytes, "state.pt"); }),
                StartsWith("state.pt: data.pkl: expected "))
        << bytes;
  }
}

TEST(PickleReaderTest, RefusesOperationsOnWhatIsNotThere) {
  for (const std::string& opcodes : {"a"s,
                                     "Na"s,
                                     "Ne"s,
                                     "NNa"s,
                                     "(e"s,
                                     "]((e"s,
                                     "\x85"s,
                                     "N\x86"s,
                                     "s"s,
                                     "NNNs"s,
                                     "}(Nu"s,
                                     "u"s,
                                     "t"s,
                                     "R"s,
                                     "N)R"s,
                                     "b"s,
                                     "NNb"s,
                                     "Q"s,
                                     "NQ"s,
                                     ")Q"s,
                                     "h\x01"s,
                                     "j\x01\x02\x03\x04"s,
                                     "q\x01"s,
                                     "(q\x01N"s,
                                     "X\xff\xff\xff\xff"
                                     "a"s,
                                     "cos\nsystem"s,
                                     "\x8a\x09"
                                     "123456789"s,
                                     "K"s,
                                     "J123"s,
                                     "G1234567"s}) {
    EXPECT_THAT(pickle_refusal(opcodes), StartsWith("state.pt: data.pkl: expected ")) << opcodes;
  }
}

TEST(PickleReaderTest, RefusesFunctionsAndClassesByName) {
  EXPECT_THAT(pickle_refusal("cos\nsystem\n" + pickled_text("ls") + "\x85R"),
              HasSubstr("a call of 'os.system'"));
  EXPECT_THAT(pickle_refusal("cbuiltins\neval\n"),
              HasSubstr("expected plain values and tensors, but got 'builtins.eval'"));
  EXPECT_THAT(pickle_refusal("ctorch._utils\n_rebuild_tensor_v2\n)R"),
              HasSubstr("a call of 'torch._utils._rebuild_tensor_v2'"));
  EXPECT_THAT(pickle_refusal("ccollections\nOrderedDict\n)\x81"),
              HasSubstr("an opcode of plain values, but got the byte 129"));
}

std::string pickled_storage(const std::string& cls, const std::string& elements) {
  return "(" + pickled_text("storage") + cls + pickled_text("0") + pickled_text("cpu") + elements + "tQ";
}

TEST(PickleReaderTest, RefusesTensorsThatCannotBe) {
  const auto tensor = [](const std::string& storage, const std::string& arguments) {
    return "ctorch._utils\n_rebuild_tensor_v2\n(" + storage + arguments + "tR";
  };
  const std::string storage = pickled_storage("ctorch\nFloatStorage\n", "K\x06");
  EXPECT_EQ(pickled(tensor(storage, "K\x01K\x02\x85K\x01\x85\x89}")).get_if<PickledTensor>()->storage_bytes,
            24U);
  EXPECT_THAT(pickle_refusal(tensor(storage, "J\xff\xff\xff\xffK\x02\x85K\x01\x85\x89}")),
              HasSubstr("but got -1"));
  EXPECT_THAT(pickle_refusal(tensor(storage, "K\x01K\x02\x85)\x89}")), HasSubstr("a stride for each size"));
  EXPECT_THAT(
      pickle_refusal(tensor(storage, "K\x01K\x02\x85K\x01\x85\x89}}" + pickled_text("conj") + "\x88s")),
      HasSubstr("conjugated"));
  EXPECT_THAT(pickle_refusal(tensor("N", "K\x01))\x89}")), HasSubstr("a storage"));
  EXPECT_THAT(pickle_refusal(pickled_storage("ctorch\nNoStorage\n", "K\x06")),
              HasSubstr("'torch.NoStorage'"));
  EXPECT_THAT(
      pickle_refusal(pickled_storage("ctorch\nDoubleStorage\n", "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f")),
      HasSubstr("a storage that fits into memory"));
}

/// 40 lists, each ten times the one before: 10^40 values from 900 bytes.
TEST(PickleReaderTest, ValuesThatRepeatEachOtherWithoutEndAreRefused) {
  std::string opcodes = "]q\x01";
  for (int level = 1; level < 40; ++level) {
    opcodes += "](";
    for (int i = 0; i < 10; ++i) opcodes += {'h', static_cast<char>(level)};
    opcodes += {'e', 'q', static_cast<char>(level + 1)};
  }
  EXPECT_THAT(pickle_refusal(opcodes), HasSubstr("repeated all over"));
}

TEST(PickleReaderTest, ALongStringThatIsRepeatedIsRefused) {
  std::string opcodes = "](" + pickled_text(std::string(1'000'000, 'x')) + "q\x01";
  for (int i = 0; i < 1'000'000; ++i) opcodes += "h\x01";
  EXPECT_THAT(pickle_refusal(opcodes + "e"), HasSubstr("repeated all over"));
}

/// Python writes True in one byte, and a flag for each of many samples is an ordinary list.
TEST(PickleReaderTest, ManySmallValuesAreNoRepetition) {
  const std::string flags = "](" + std::string(100'000, '\x88') + "e";
  const PickleValue value = pickled(flags);
  const auto& list = std::get<PickleValue::List>(value.data());
  ASSERT_EQ(list.size(), 100'000u);
  EXPECT_TRUE(std::get<bool>(list.back().data()));
  // Python writes a string that occurs again as a reference of two bytes.
  std::string names = "](" + pickled_text("relu") + "q\x01";
  for (int i = 0; i < 100'000; ++i) names += "h\x01";
  EXPECT_EQ(pickle_refusal(names + "e"), "no error");
}

/// Each repetition takes a few bytes, but would expand to a megabyte.
TEST(PickleReaderTest, LongTuplesAndNamesAreNotRepeatedInTensors) {
  std::string tuple = "(";
  for (int i = 0; i < 1000; ++i) tuple += "K\x01";
  tuple += "tq\x01";
  EXPECT_THAT(pickle_refusal(tuple + "ctorch._utils\n_rebuild_tensor_v2\n(" +
                             pickled_storage("ctorch\nFloatStorage\n", "K\x06") + "K\x01h\x01h\x01\x89}tR"),
              HasSubstr("at most 64 dimensions, but got 1000"));
  EXPECT_THAT(pickle_refusal(tuple + "ccollections\nOrderedDict\nh\x01R"),
              HasSubstr("at most 8 arguments, but got 1000"));
  EXPECT_THAT(pickle_refusal(tuple + "h\x01Q"), HasSubstr("at most 8 arguments, but got 1000"));
  EXPECT_THAT(pickle_refusal("(" + pickled_text("storage") + "ctorch\nFloatStorage\n" +
                             pickled_text(std::string(1000, 'x')) + pickled_text("cpu") + "K\x01tQ"),
              HasSubstr("a short name of a record, but got 1000 bytes"));
}

TEST(PickleReaderTest, ValuesThatHoldThemselvesAndDeepOnesAreRefused) {
  EXPECT_THAT(pickle_refusal("]q\x01h\x01"
                             "a"),
              HasSubstr("at most 64 deep"));
  EXPECT_THAT(pickle_refusal(std::string(1'000'000, ']') + std::string(999'999, 'a')),
              HasSubstr("at most 64 deep"));
  EXPECT_EQ(pickle_refusal(std::string(64, ']') + std::string(63, 'a')), "no error");
  EXPECT_THAT(pickle_refusal(std::string(65, ']') + std::string(64, 'a')), HasSubstr("at most 64 deep"));
}

TEST(PickleReaderTest, RefusesKeysThatAreNoStringsOrIntegersAndKeysGivenTwice) {
  EXPECT_THAT(pickle_refusal("}NNs"), HasSubstr("a string or an integer as the key"));
  EXPECT_THAT(pickle_refusal("}K\x01NsK\x01Ns"), HasSubstr("each key once"));
}

TEST(PickleReaderTest, RefusesMoreThanTheLimit) {
  const std::string bytes(kMaxPickleBytes + 1, 'N');
  EXPECT_THAT(error_of<CheckpointError>([&] { read_pickle(bytes, "state.pt"); }),
              HasSubstr("at most 16777216 bytes"));
}

/// Pickles of 15 MiB of which each byte, or every few, makes a value.
TEST(PickleReaderTest, NoPickleTakesMemoryFarBeyondItsSize) {
  constexpr size_t kBytes = size_t{15} << 20;
  const auto repeated = [](const std::string& start, const std::string& part, const std::string& end) {
    std::string opcodes = start;
    while (opcodes.size() < kBytes) opcodes += part;
    return opcodes + end;
  };
  const std::string tensor = "(" + pickled_storage("ctorch\nFloatStorage\n", "K\x06") + "K\x01))\x89}tq\x02";
  const std::string hostile[] = {
      repeated("](", "N", "e"),                                                                  // values
      repeated("](", "]", "e"),                                                                  // containers
      repeated("](", "c\n\n", "e"),                                                              // names
      repeated("](Nq\x01", "h\x01", "e"),                                                        // references
      repeated("", "(", ""),                                                                     // marks
      repeated("ctorch._utils\n_rebuild_tensor_v2\nq\x01" + tensor + "](", "h\x01h\x02R", "e"),  // tensors
      repeated("](" + pickled_text(std::string(1'000'000, 'x')) + "q\x01", "h\x01", "e"),  // long strings
  };
  for (const std::string& opcodes : hostile) {
    EXPECT_LT(
        testing::peak_memory_of([&] { return pickle_refusal(opcodes).starts_with("state.pt: data.pkl: "); }),
        uint64_t{400} << 20)
        << opcodes.substr(0, 20);
  }
}

/// A program's own state: a flag for each of two million samples, and one more.
TEST(PickleReaderTest, ReadsAsManyValuesAsTheWriterAccepts) {
  PickleValue::List flags(kMaxPickledValues - 1, true);
  EXPECT_EQ(std::get<PickleValue::List>(read_pickle(write_pickle(flags), "").data()).size(), flags.size());
  flags.emplace_back(true);
  EXPECT_THAT(error_of<InvalidArgument>([&] { write_pickle(flags); }), HasSubstr("at most 2097152 values"));
}

TEST(PickleReaderTest, DamagedPicklesAreReadOrRefused) {
  const std::string whole = write_pickle(every_kind());
  std::mt19937_64 random(1);
  int num_refused = 0;
  for (int round = 0; round < 50'000; ++round) {
    std::string bytes = whole;
    for (uint64_t changes = random() % 4 + 1; changes > 0; --changes) {
      const size_t at = random() % bytes.size();
      bytes[at] = random() % 2 == 0 ? static_cast<char>(random()) : whole[random() % whole.size()];
    }
    if (random() % 8 == 0) bytes.resize(random() % bytes.size());
    try {
      read_pickle(bytes, "state.pt");
    } catch (const CheckpointError&) {
      ++num_refused;
    }
  }
  EXPECT_GT(num_refused, 10'000);
}

TEST(PickleWriterTest, RefusesWhatIsNestedTooDeep) {
  PickleValue value;
  for (int depth = 1; depth < 64; ++depth) value = PickleValue::List{value};
  EXPECT_EQ(write_pickle(read_pickle(write_pickle(value), "")), write_pickle(value));
  EXPECT_THAT(error_of<InvalidArgument>([&] { write_pickle(PickleValue::List{value}); }),
              HasSubstr("at most 64 deep"));
}

}  // namespace
}  // namespace lockstep
