#include "lockstep/apps/train_gpt/data/gpt_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/tokens/token_file_writer.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/datasets/tokens/parquet_token_files.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep::apps {
namespace {

using lockstep::testing::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

GptData open_data(const GptTrainOptions& options) {
  return open_gpt_data(options, base_model(options), {});
}

GptTrainOptions options_for(const std::vector<std::string>& data) {
  GptTrainOptions options;
  options.data = data;
  options.sequence_length = 10;
  return options;
}

std::string write_tokens(const TemporaryFolder& folder, const std::string& name, uint32_t count) {
  const std::string path = folder.path() + "/" + name;
  TokenFileWriter writer({.path = path, .vocab_size = 1000});
  for (uint32_t token = 0; token < count; ++token) writer.append(std::vector<uint32_t>{token});
  writer.finish();
  return path;
}

TEST(GptDataTest, TheGeneratedLanguageHasOtherTextsToTestOn) {
  GptTrainOptions options;
  options.limit_test = 12;
  const GptData data = open_data(options);
  EXPECT_EQ(data.test.num_sequences(), 12);
  EXPECT_EQ(data.vocabulary_size, 78);
  EXPECT_FALSE(data.train.get_batch({0}).data.equal(data.test.get_batch({0}).data));
}

TEST(GptDataTest, AnotherSeedTrainsOnOtherTextsAndTestsOnTheSame) {
  GptTrainOptions options;
  const GptData one = open_data(options);
  options.seed = 2;
  const GptData other = open_data(options);
  EXPECT_FALSE(one.train.get_batch({0}).data.equal(other.train.get_batch({0}).data));
  EXPECT_TRUE(one.test.get_batch({0}).data.equal(other.test.get_batch({0}).data));
}

TEST(GptDataTest, TheGeneratedLanguageHasTheFactsThatAreAskedFor) {
  GptTrainOptions options;
  options.fact_names = 112;
  EXPECT_EQ(open_data(options).vocabulary_size, 78 + 3 * 112);
  options.fact_share = 1;
  const GptData data = open_data(options);
  EXPECT_EQ(data.vocabulary_size, 2 + 3 * 112);
  EXPECT_EQ(data.codec.tokens("Alwin Ashcroft lives in Aldbury.").size(), 5U);
  // 112^2 log2(112) bits.
  EXPECT_THAT(data.description, HasSubstr("12\u202F544 facts of 85\u202F391 bits"));
}

TEST(GptDataTest, TestsOnTheLastSequencesOfItsFiles) {
  const TemporaryFolder folder;
  auto options = options_for({write_tokens(folder, "a.bin", 101)});  // ten sequences
  options.vocabulary_size = 1000;
  options.test_share = 0.3;
  const GptData data = open_data(options);
  EXPECT_EQ(data.train.num_sequences(), 7);
  EXPECT_EQ(data.test.num_sequences(), 3);
  EXPECT_EQ(data.test.get_batch({0}).data[0][0].item<int64_t>(), 70);
  options.limit_train = 4;
  options.limit_test = 2;
  const GptData limited = open_data(options);
  EXPECT_EQ(limited.train.num_sequences(), 4);
  EXPECT_EQ(limited.test.num_sequences(), 2);
  EXPECT_EQ(limited.test.get_batch({0}).data[0][0].item<int64_t>(), 70);
}

TEST(GptDataTest, TestsOnOtherFilesIfTheyAreNamed) {
  const TemporaryFolder folder;
  auto options = options_for({write_tokens(folder, "a.bin", 101)});
  options.test_data = {write_tokens(folder, "b.bin", 41)};
  options.vocabulary_size = 1000;
  const GptData data = open_data(options);
  EXPECT_EQ(data.train.num_sequences(), 10);
  EXPECT_EQ(data.test.num_sequences(), 4);
}

TEST(GptDataTest, TextIsReadAsBytesWithoutATokenizer) {
  const TemporaryFolder folder;
  const std::string text(200, 'x');
  const GptData data = open_data(options_for({folder.write("a.txt", text)}));
  EXPECT_EQ(data.vocabulary_size, 257);
  EXPECT_EQ(data.train.get_batch({0}).data[0][0].item<int64_t>(), 'x');
  EXPECT_EQ(data.codec.text(std::vector<int64_t>{'x'}), "x");
}

TEST(GptDataTest, TokenFilesNeedAVocabulary) {
  const TemporaryFolder folder;
  write_tokens(folder, "a.bin", 101);
  for (const auto& place : {folder.path(), folder.path() + "/a.bin"}) {
    EXPECT_THAT(
        [&] { open_data(options_for({place})); },
        ThrowsMessage<UsageError>(HasSubstr("expected --vocabulary-size, --tokenizer or a published")));
  }
  auto options = options_for({folder.path()});
  options.model = "gpt2";
  EXPECT_EQ(open_data(options).vocabulary_size, 50257);
}

#ifdef LOCKSTEP_TEST_ARROW
TEST(GptDataTest, ParquetFilesOfTokensAreAsTokenFiles) {
  const TemporaryFolder folder;
  std::vector<std::vector<uint32_t>> documents;
  for (uint32_t token = 0; token < 101; ++token) {
    if (token % 7 == 0) documents.emplace_back();
    documents.back().push_back(token);
  }
  write_token_lists(folder.file("a.parquet"), documents, 2);
  auto options = options_for({write_tokens(folder, "a.bin", 101)});
  options.vocabulary_size = 101;
  const GptData expected = open_data(options);
  options.data = {folder.file("*.parquet")};
  const GptData data = open_data(options);
  EXPECT_THAT(data.description, HasSubstr("101 tokens"));
  const MirroredStrategy two({"cpu:0", "cpu:1"});
  for (const auto part : {&GptData::train, &GptData::test}) {
    ASSERT_EQ((data.*part).num_sequences(), (expected.*part).num_sequences());
    auto batches = distribute(two, data.*part, {.global_batch_size = 4});
    auto of_file = distribute(two, expected.*part, {.global_batch_size = 4});
    auto other = of_file.begin();
    for (const auto& batch : batches) {
      for (size_t replica = 0; replica < 2; ++replica) {
        EXPECT_TRUE(batch.local_values()[replica].data.equal((*other).local_values()[replica].data));
        EXPECT_TRUE(batch.local_values()[replica].target.equal((*other).local_values()[replica].target));
      }
      ++other;
    }
  }
  // The last chunk with training sequences has a test sequence, too.
  const ParquetSequences train(data.train), test(data.test);
  size_t sequences = 0;
  for (size_t chunk = 0; chunk < train.chunk_sizes().size(); ++chunk)
    sequences += train.chunk_sizes()[chunk] + test.chunk_sizes()[chunk];
  EXPECT_EQ(sequences, 10U);
  EXPECT_EQ(data.codec.text(std::vector<int64_t>{5, 6}), "5 6");
}

TEST(GptDataTest, ParquetFilesOfTextAreEncodedByTheTokenizer) {
  const TemporaryFolder folder;
  write_texts(folder.file("a.parquet"), {std::string(60, 'x'), std::string(60, 'y')}, 1);
  auto options = options_for({folder.file("a.parquet")});
  const GptData data = open_data(options);
  EXPECT_EQ(data.vocabulary_size, 257);
  EXPECT_EQ(data.codec.text(std::vector<int64_t>{'x'}), "x");
  EXPECT_EQ(data.train.get_batch({6}).data[0][0].item<int64_t>(), 256);
  EXPECT_EQ(data.train.get_batch({6}).target[0][0].item<int64_t>(), 'y');
  options.parquet_column = "body";
  EXPECT_THAT([&] { open_data(options); }, ThrowsMessage<DataError>(HasSubstr("expected one named 'body'")));
}

TEST(GptDataTest, ParquetFilesOfOtherColumnsAreRefused) {
  const TemporaryFolder folder;
  ParquetWriter writer({.path = folder.file("a.parquet"), .columns = {{.name = "other", .type = at::kLong}}});
  writer.append({{.values = torch::ones({3}, torch::kLong), .offsets = {}}});
  writer.close();
  EXPECT_THAT([&] { open_data(options_for({folder.path()})); },
              ThrowsMessage<DataError>(HasSubstr("got other; --parquet-column names another one")));
}
#endif

TEST(GptDataTest, DataOfOneSequenceIsTooShort) {
  const TemporaryFolder folder;
  EXPECT_THAT([&] { open_data(options_for({folder.write("a.txt", "eleven bytes")})); },
              ThrowsMessage<DataError>(HasSubstr("expected tokens for at least 2 sequences of 10")));
}

}  // namespace
}  // namespace lockstep::apps
