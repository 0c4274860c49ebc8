#include "lockstep/datasets/tokens/parquet_tokens.h"

#include <arrow/builder.h>
#include <arrow/io/file.h>
#include <arrow/table.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <parquet/arrow/writer.h>
#include <torch/torch.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/tokens/token_file_writer.h"
#include "lockstep/datasets/tokens/token_files.h"
#include "lockstep/strategies/input/indexed_source.h"
#include "lockstep/tests/datasets/tokens/parquet_token_files.h"
#include "lockstep/tests/support/dataset_on_replicas.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/support/worker_strategies.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TemporaryFolder;
using Documents = std::vector<std::vector<uint32_t>>;

static_assert(ChunkedDataset<ParquetTokens>);

constexpr uint32_t kVocabulary = 1000;

/// Documents of random lengths, some of them empty.
Documents random_documents(std::mt19937& random, size_t count, size_t most) {
  Documents documents(count);
  for (auto& document : documents) {
    document.resize(random() % 4 == 0 ? 0 : random() % most);
    for (auto& token : document) token = static_cast<uint32_t>(random() % kVocabulary);
  }
  return documents;
}

/// The same tokens in Parquet files and in a token file.
struct BothFiles {
  explicit BothFiles(uint32_t seed) : random(seed) {
    TokenFileWriter writer({.path = folder.file("tokens.bin"), .vocab_size = kVocabulary});
    const int num_files = 1 + static_cast<int>(random() % 3);
    for (int file = 0; file < num_files; ++file) {
      const auto documents = random_documents(random, 30 + random() % 40, 40);
      write_token_lists(folder.file("part_" + std::to_string(file) + ".parquet"), documents,
                        1 + static_cast<int64_t>(random() % 20), random() % 2 ? at::kInt : at::kLong);
      for (const auto& document : documents) writer.append(document);
    }
    writer.finish();
  }

  std::mt19937 random;
  TemporaryFolder folder;
};

void expect_equal_sequences(const torch::data::Example<>& got, const torch::data::Example<>& expected) {
  EXPECT_TRUE(got.data.equal(expected.data));
  EXPECT_TRUE(got.target.equal(expected.target));
}

TEST(ParquetTokens, AreTheSequencesOfATokenFile) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    BothFiles files(seed);
    const auto length = static_cast<int64_t>(1 + files.random() % 90);
    const auto stride = static_cast<int64_t>(1 + files.random() % 120);
    const TokenFiles expected({.paths = {files.folder.file("tokens.bin")},
                               .sequence_length = length,
                               .vocab_size = kVocabulary,
                               .stride = stride});
    const ParquetTokens tokens({.paths = {files.folder.file("*.parquet")},
                                .sequence_length = length,
                                .vocab_size = kVocabulary,
                                .stride = stride,
                                .memory_limit = 4 * 800});
    ASSERT_EQ(tokens.num_tokens(), expected.num_tokens());
    ASSERT_EQ(tokens.size(), expected.size());
    std::vector<size_t> indices(*tokens.size());
    std::iota(indices.begin(), indices.end(), size_t{0});
    std::shuffle(indices.begin(), indices.end(), files.random);
    expect_equal_sequences(tokens.get_batch(indices), expected.get_batch(indices));
    for (const size_t index : indices)
      expect_equal_sequences(tokens.get_batch({index}), expected.get_batch({index}));
    EXPECT_LE(tokens.peak_memory(), 4 * 800);
    const auto sizes = tokens.chunk_sizes();
    EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), size_t{0}), *tokens.size());
  }
}

/// Returns the data and the targets of one epoch, all steps and replicas one after another.
at::Tensor epoch_of_tokens(DistributedDataset<torch::data::Example<>>& batches) {
  std::vector<at::Tensor> shards;
  for (const auto& batch : batches)
    for (const auto& shard : batch.local_values()) shards.push_back(at::cat({shard.data, shard.target}, 1));
  return at::cat(shards);
}

/// Sorts rows, which must differ in their first columns.
at::Tensor sorted_rows(const at::Tensor& rows) {
  at::Tensor keys = at::zeros({rows.size(0)}, at::kLong);
  for (int64_t column = 0; column < 6; ++column) keys = keys * kVocabulary + rows.select(1, column);
  return rows.index_select(0, keys.argsort());
}

TEST(ParquetTokens, AreCountedInFilesWhoseWriterHasNot) {
  const TemporaryFolder folder;
  std::mt19937 random(7);
  const Documents documents = random_documents(random, 200, 30);
  write_token_lists(folder.file("noted.parquet"), documents, 30);
  // The same lists as large_list in other row groups, without statistics of sizes.
  auto ids = std::make_shared<arrow::Int64Builder>();
  arrow::LargeListBuilder lists(arrow::default_memory_pool(), ids);
  for (const auto& document : documents) {
    ASSERT_TRUE(lists.Append(!document.empty()).ok());  // null if it is empty
    for (const uint32_t token : document) ASSERT_TRUE(ids->Append(token).ok());
  }
  const auto schema = arrow::schema({arrow::field("input_ids", arrow::large_list(arrow::int64()))});
  const auto table = arrow::Table::Make(schema, {lists.Finish().ValueOrDie()});
  const auto file = arrow::io::FileOutputStream::Open(folder.file("plain.parquet")).ValueOrDie();
  parquet::WriterProperties::Builder properties;
  properties.set_size_statistics_level(parquet::SizeStatisticsLevel::None);
  ASSERT_TRUE(
      parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), file, 17, properties.build()).ok());
  ASSERT_TRUE(file->Close().ok());
  const ParquetFile plain({.path = folder.file("plain.parquet"), .columns = {"input_ids"}});
  EXPECT_EQ(plain.num_values(0, 0), std::nullopt);
  const auto open = [&](const std::string& name) {
    return ParquetTokens({.paths = {folder.file(name)}, .sequence_length = 9, .vocab_size = kVocabulary});
  };
  const ParquetTokens got = open("plain.parquet"), expected = open("noted.parquet");
  ASSERT_EQ(got.num_tokens(), expected.num_tokens());
  std::vector<size_t> all(*expected.size());
  std::iota(all.begin(), all.end(), size_t{0});
  expect_equal_sequences(got.get_batch(all), expected.get_batch(all));
}

TEST(ParquetTokens, ComeInTheOrderOfTheFilesOrShuffledAlikeForAnyNumberOfReplicas) {
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    BothFiles files(seed);
    const TokenFiles in_file(
        {.paths = {files.folder.file("tokens.bin")}, .sequence_length = 8, .vocab_size = kVocabulary});
    const auto made = [&] {
      return ParquetTokens({.paths = {files.folder.file("*.parquet")},
                            .sequence_length = 8,
                            .vocab_size = kVocabulary,
                            .memory_limit = 4 * 1600,
                            .lanes = 1 + seed % 3});
    };
    OnReplicas one(1);
    auto plain = one->distribute_dataset(in_file, {.global_batch_size = 7});
    const at::Tensor in_order = epoch_of_tokens(plain);
    auto unshuffled = one->distribute_dataset(made(), {.global_batch_size = 7});
    EXPECT_TRUE(epoch_of_tokens(unshuffled).equal(in_order));

    const DistributeOptions options{
        .global_batch_size = 7, .shuffle_seed = seed, .shuffle_window = seed % 2 ? 0 : 5};
    auto shuffled = one->distribute_dataset(made(), options);
    const std::vector<at::Tensor> epochs{epoch_of_tokens(shuffled), epoch_of_tokens(shuffled)};
    EXPECT_FALSE(epochs[0].equal(in_order));
    EXPECT_FALSE(epochs[0].equal(epochs[1]));
    for (const auto& epoch : epochs) EXPECT_TRUE(sorted_rows(epoch).equal(sorted_rows(in_order)));
    for (const int replicas : {2, 3}) {
      OnReplicas several(replicas);
      auto first = several->distribute_dataset(made(), options);
      EXPECT_TRUE(epoch_of_tokens(first).equal(epochs[0]));
      // Stops in the second epoch, and resumes with another object.
      std::vector<at::Tensor> second;
      const int stop = 1 + static_cast<int>(files.random() % 5);
      int steps = 0;
      for (const auto& batch : first) {
        for (const auto& shard : batch.local_values())
          second.push_back(at::cat({shard.data, shard.target}, 1));
        if (++steps == stop) break;
      }
      auto rest = several->distribute_dataset(made(), options);
      rest.restore(first.position());
      second.push_back(epoch_of_tokens(rest));
      EXPECT_TRUE(at::cat(second).equal(epochs[1])) << seed << ", " << replicas << ", " << stop;
    }
  }
}

TEST(ParquetTokens, ComeInTheOrderOfOneReplicaToSeveralWorkers) {
  BothFiles files(3);
  const auto made = [&] {
    return ParquetTokens({.paths = {files.folder.file("*.parquet")},
                          .sequence_length = 8,
                          .vocab_size = kVocabulary,
                          .lanes = 2});
  };
  const DistributeOptions options{.global_batch_size = 4, .shuffle_seed = 2, .drop_remainder = true};
  OnReplicas one(1);
  auto alone = one->distribute_dataset(made(), options);
  const at::Tensor expected = epoch_of_tokens(alone);
  std::vector<at::Tensor> of_workers(2);
  for (const auto& error : run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
         auto batches = strategy.distribute_dataset(made(), options);
         of_workers[static_cast<size_t>(strategy.cluster_resolver()->rank())] = epoch_of_tokens(batches);
       }))
    EXPECT_FALSE(error);
  // Of each batch of 4, a worker has 2.
  const int64_t steps = expected.size(0) / 4;
  const auto in_steps = [&](const at::Tensor& rows) { return rows.view({steps, 2, -1}); };
  EXPECT_TRUE(
      at::cat({in_steps(of_workers[0]), in_steps(of_workers[1])}, 1).view({steps * 4, -1}).equal(expected));
}

TEST(ParquetTokens, DecodeARowGroupHardlyMoreThanOnceAnEpoch) {
  const TemporaryFolder folder;
  std::mt19937 random(1);
  write_token_lists(folder.file("a.parquet"), random_documents(random, 2000, 40), 50);
  const ParquetTokens tokens({.paths = {folder.path()},
                              .sequence_length = 16,
                              .vocab_size = kVocabulary,
                              .memory_limit = 4 * 10'000,
                              .lanes = 4});
  ASSERT_EQ(tokens.chunk_sizes().size(), 40U);
  OnReplicas two(2);
  auto batches = two->distribute_dataset(tokens, {.global_batch_size = 16, .shuffle_seed = 1});
  epoch_of_tokens(batches);
  // Once more for the ends of sequences, and at the ends of lanes.
  EXPECT_LE(tokens.num_decoded_row_groups(), 2 * 40 + 3);
  const int64_t first = tokens.num_decoded_row_groups();
  epoch_of_tokens(batches);
  EXPECT_LE(tokens.num_decoded_row_groups() - first, 40 + 3) << "the first tokens are kept";
}

TEST(ParquetTokens, NameTheFirstTokenBeyondTheVocabulary) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.parquet");
  write_token_lists(path, {{1, 2}, {}, {3, 4, 5}, {6}, {7, 1000, 9}}, 3);
  const ParquetTokens tokens({.paths = {path}, .sequence_length = 2, .vocab_size = kVocabulary});
  tokens.get_batch({0, 1});
  EXPECT_THAT(message_of<DataError>([&] { tokens.get_batch({2}); }),
              HasSubstr(path + ": row group 1: row 1: token: expected one below the size of the vocabulary, "
                               "1000, but got 1000"));
  write_token_lists(path, {{1, 2, 3, 4294967295}}, 3, at::kInt);
  EXPECT_THAT(
      message_of<DataError>([&] {
        ParquetTokens({.paths = {path}, .sequence_length = 2, .vocab_size = kVocabulary}).get_batch({0});
      }),
      HasSubstr("got -1"));
}

TEST(ParquetTokens, RefuseOtherColumnsAndTooFewTokens) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.parquet");
  const auto message = [&](const ParquetTokensOptions& options) {
    return message_of<DataError>([&] { ParquetTokens tokens(options); });
  };
  write_texts(path, {"a"}, 1);
  EXPECT_THAT(message({.paths = {path}, .column = "text", .vocab_size = 9}),
              HasSubstr(path + ": column 'text': expected lists of ids of tokens, but got strings"));
  EXPECT_THAT(message({.paths = {path}, .vocab_size = 9}), HasSubstr("expected one named 'input_ids'"));
  write_token_lists(path, {{1, 2}, {3}}, 1);
  EXPECT_THAT(
      message({.paths = {path}, .sequence_length = 3, .vocab_size = 9}),
      HasSubstr(path + ": expected at least 4 tokens for a sequence of 3 and the token after it, but got 3"));
  EXPECT_THAT(message({.paths = {path}, .sequence_length = 2, .vocab_size = 9, .memory_limit = 7}),
              AllOf(HasSubstr(path + ": row group 0: expected at most 1 tokens"), HasSubstr("but got 2")));
  write_token_lists(path, {{1, 2}, {3}}, 1, at::kFloat);
  EXPECT_THAT(message({.paths = {path}, .vocab_size = 9}), HasSubstr("but got lists of Float"));
  for (const ParquetTokensOptions& wrong :
       {ParquetTokensOptions{.paths = {path}},
        ParquetTokensOptions{.paths = {path}, .sequence_length = 0, .vocab_size = 9},
        ParquetTokensOptions{.paths = {path}, .vocab_size = 9, .stride = 0},
        ParquetTokensOptions{.paths = {path}, .vocab_size = 9, .memory_limit = 0},
        ParquetTokensOptions{.paths = {path}, .vocab_size = 9, .lanes = -1}})
    EXPECT_THROW(ParquetTokens tokens(wrong), std::invalid_argument);
}

/// Each byte is a token, and 256 ends a document.
TextEncoding bytes_encoding() {
  return {.encode =
              [](std::string_view text) {
                std::vector<uint32_t> tokens;
                for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
                return tokens;
              },
          .end_of_text = 256,
          .identity = "bytes",
          .requires_utf8 = true};
}

TEST(TokenFilesOfParquetText, AreThoseOfJsonLines) {
  const TemporaryFolder folder;
  const std::vector<std::string> documents{"once", "", "upon a", "Zürich", "time\n", "x"};
  const std::string path = folder.file("a.parquet");
  write_texts(path, documents, 2);
  std::string lines;
  for (const auto& document : documents) {
    lines += R"({"text": ")";
    for (const char c : document) lines += c == '\n' ? "\\n" : std::string(1, c);
    lines += "\"}\n";
  }
  const std::string json = folder.write("a.jsonl", lines);
  const auto open = [&](const std::string& data, const std::string& cache) {
    return TokenFiles({.paths = {data},
                       .sequence_length = 4,
                       .vocab_size = 257,
                       .encoding = bytes_encoding(),
                       .cache_folder = cache});
  };
  const TokenFiles expected = open(json, "");
  std::vector<size_t> all(*expected.size());
  std::iota(all.begin(), all.end(), size_t{0});
  for (const std::string& cache : {std::string(), folder.file("cache"), folder.file("cache")}) {
    const TokenFiles tokens = open(path, cache);
    ASSERT_EQ(tokens.num_tokens(), expected.num_tokens());
    expect_equal_sequences(tokens.get_batch(all), expected.get_batch(all));
  }
  EXPECT_EQ(open("file://" + path, "").num_tokens(), expected.num_tokens());
  // Another text of the same length is not taken from the cache.
  auto others = documents;
  others[2] = "upon b";
  write_texts(path, others, 2);
  EXPECT_FALSE(open(path, folder.file("cache")).get_batch(all).data.equal(expected.get_batch(all).data));
}

TEST(TokenFilesOfParquetText, NameTheRowOfBadText) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.parquet");
  const auto message = [&](const std::string& column) {
    return message_of<DataError>([&] {
      TokenFiles({.paths = {path},
                  .sequence_length = 4,
                  .vocab_size = 257,
                  .encoding = bytes_encoding(),
                  .parquet_column = column});
    });
  };
  write_texts(path, {"good", "good", "good", "no\xff good"}, 3);
  EXPECT_THAT(message("text"),
              HasSubstr(path + ": row group 1: row 0: byte 2 of its text: expected valid UTF-8"));
  write_texts(path, {"", ""}, 3);
  EXPECT_THAT(message("text"), HasSubstr(path + ": column 'text': expected text, but got none"));
  write_token_lists(path, {{1}}, 3);
  EXPECT_THAT(message("input_ids"), HasSubstr("expected text, but got another type"));
}

}  // namespace
}  // namespace lockstep
