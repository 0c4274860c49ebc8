#include "lockstep/training/parameter_server/internal/server_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/parameter_server/service/parameter_service.h"
#include "lockstep/parameter_server/shards/disk_row_store.h"
#include "lockstep/parameter_server/shards/row_disk.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/tests/support/test_files.h"
#include "lockstep/tests/support/text_files.h"
#include "lockstep/training/checkpoints/checkpoint_store.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::read_text;
using testing::TemporaryFolder;
using ::testing::ThrowsMessage;
using testing::write_text;

HeldShard held(const std::string& name, const std::string& variable, const RowRange& rows,
               const UpdateRule& rule) {
  const std::vector<int64_t> sizes{rows.size(), 3};
  auto shard = std::make_shared<ParameterShard>(name, torch::randn(sizes), rule);
  for (uint64_t closure = 0; closure < 3; ++closure)
    shard->push(torch::randn(sizes), {.id = {closure, uint64_t{1} << 63}, .lr = 0.1});
  return {variable, rows, std::move(shard)};
}

/// A table that trains a row once it is frequent, for as long as it keeps occurring.
HeldShard filtered_table() {
  const RowRange rows{0, 9};
  const FilteredRows filtered{{.min_frequency = 2, .steps_to_live = 5},
                              UniformValues{.low = -1, .high = 2, .seed = uint64_t{1} << 63},
                              rows};
  auto shard = std::make_shared<ParameterShard>("wide", torch::randn({9, 3}), AdagradRule{}, filtered);
  for (uint64_t closure = 0; closure < 3; ++closure)
    shard->push_rows(torch::arange(2, 4 + static_cast<int64_t>(closure)),
                     torch::randn({2 + static_cast<int64_t>(closure), 3}), {.id = {closure, 0}, .lr = 0.1});
  return {"wide", rows, std::move(shard)};
}

/// Servers that have trained for a while, the rows of a table spread over them.
std::vector<std::vector<HeldShard>> trained_servers() {
  torch::manual_seed(5);
  const AdamRule adam{.beta1 = 0.8, .amsgrad = true};
  return {
      {held("table/part_0", "table", {0, 4}, adam), held("bias", "bias", {0, 1}, SgdRule{.momentum = 0.5})},
      {held("table/part_1", "table", {4, 7}, adam), filtered_table()}};
}

class ServerCheckpoints {
 public:
  explicit ServerCheckpoints(const std::string& folder) : folder_(folder), store_({.folder = folder}) {}

  /// Saves as a coordinator does.
  std::string save(const std::vector<std::vector<HeldShard>>& servers, int64_t step) {
    const std::string begun = store_.begin();
    CheckpointManifest manifest{.step = step, .version = "1.2.3"};
    for (size_t i = 0; i < servers.size(); ++i) {
      const int number = static_cast<int>(i);
      const int count = static_cast<int>(servers.size());
      ServerCheckpoint server({.folder = folder_, .server = number, .num_servers = count});
      const auto text = server.save(fs::path(begun).filename().string(), servers[i]);
      for (const auto& file : parse_manifest(text, "server").files) manifest.files.push_back(file);
    }
    return store_.commit(begun, manifest);
  }

 private:
  std::string folder_;
  CheckpointStore store_;
};

void expect_equal(const ParameterShard::Saved& one, const ParameterShard::Saved& other) {
  EXPECT_TRUE(one.values.equal(other.values));
  EXPECT_EQ(one.version, other.version);
  EXPECT_EQ(one.pushes, other.pushes);
  ASSERT_EQ(one.optimizer.size(), other.optimizer.size());
  for (size_t i = 0; i < one.optimizer.size(); ++i) {
    EXPECT_EQ(one.optimizer[i].first, other.optimizer[i].first);
    EXPECT_TRUE(one.optimizer[i].second.equal(other.optimizer[i].second)) << one.optimizer[i].first;
  }
}

TEST(ServerCheckpointTest, AServerGoesOnWithWhatItHeld) {
  const TemporaryFolder folder;
  const auto servers = trained_servers();
  const auto path = ServerCheckpoints(folder.path()).save(servers, 3);
  for (int i = 0; i < 2; ++i) {
    ServerCheckpoint server({.folder = folder.path(), .server = i, .num_servers = 2});
    EXPECT_EQ(server.path(), path);
    const auto own = server.take_own();
    const auto& before = servers[static_cast<size_t>(i)];
    ASSERT_EQ(own.size(), before.size());
    for (size_t k = 0; k < own.size(); ++k) {
      EXPECT_EQ(own[k].shard->name(), before[k].shard->name());
      EXPECT_EQ(own[k].variable, before[k].variable);
      EXPECT_EQ(own[k].rows, before[k].rows);
      EXPECT_EQ(own[k].shard->rule(), before[k].shard->rule());
      EXPECT_EQ(own[k].shard->filtered(), before[k].shard->filtered());
      expect_equal(own[k].shard->save(), before[k].shard->save());
    }
    EXPECT_THAT(server.take_own(), IsEmpty());
  }
}

TEST(ServerCheckpointTest, AnotherNumberOfServersFindsTheRowsThatItNeeds) {
  const TemporaryFolder folder;
  const auto servers = trained_servers();
  ServerCheckpoints(folder.path()).save(servers, 3);
  ServerCheckpoint server({.folder = folder.path(), .server = 2, .num_servers = 3});
  EXPECT_THAT(server.take_own(), IsEmpty());
  const auto first = servers[0][0].shard->save();
  const auto second = servers[1][0].shard->save();
  const auto found = server.find("table", {2, 6});
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->values.equal(torch::cat({first.values.narrow(0, 2, 2), second.values.narrow(0, 0, 2)})));
  EXPECT_EQ(found->version, 3U);
  expect_equal(*server.find("wide", {0, 9}), servers[1][1].shard->save());
  EXPECT_FALSE(server.find("new", {0, 9}));
  EXPECT_THAT(([&] {
                server.find("table", {5, 8});
              }),
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("table: "), HasSubstr("no row 7"))));
}

TEST(ServerCheckpointTest, NothingIsThereBeforeTheFirstOne) {
  const TemporaryFolder folder;
  ServerCheckpoint server({.folder = folder.path() + "/new", .server = 0, .num_servers = 1});
  EXPECT_EQ(server.path(), "");
  EXPECT_THAT(server.take_own(), IsEmpty());
  EXPECT_FALSE(server.find("table", {0, 9}));
}

void flip_bit(const std::string& path) {
  auto text = read_text(path);
  text.at(text.size() / 2) ^= 0x10;
  write_text(path, text);
}

TEST(ServerCheckpointTest, ADamagedOneIsPassedOverAndNamed) {
  const TemporaryFolder folder;
  ServerCheckpoints checkpoints(folder.path());
  auto servers = trained_servers();
  const auto older = checkpoints.save(servers, 3);
  servers[0][0].shard->push(torch::ones({4, 3}), {.id = {9, 0}, .lr = 1});
  const auto newer = checkpoints.save(servers, 4);
  flip_bit(newer + "/server-0-shard-0.pt");
  std::vector<std::string> said;
  const auto options = [&](int server, int count) {
    return ServerCheckpointOptions{
        .folder = folder.path(), .server = server, .num_servers = count, .on_message = [&](const auto& line) {
          said.push_back(line);
        }};
  };
  EXPECT_EQ(ServerCheckpoint(options(0, 2)).path(), older);
  EXPECT_THAT(said, ElementsAre(AllOf(HasSubstr("passed over"), HasSubstr(newer + "/server-0-shard-0.pt"))));
  said.clear();
  EXPECT_EQ(ServerCheckpoint(options(1, 2)).path(), newer);  // its own shards are whole
  EXPECT_THAT(said, IsEmpty());
  EXPECT_EQ(ServerCheckpoint(options(1, 3)).path(), older);  // it may need any shard
  flip_bit(older + "/manifest.json");
  EXPECT_THAT([&] { ServerCheckpoint server(options(0, 2)); },
              ThrowsMessage<CheckpointError>(HasSubstr("expected a whole checkpoint, but all are damaged")));
}

TEST(ServerCheckpointTest, SavesInBegunFoldersOnly) {
  const TemporaryFolder folder;
  ServerCheckpoint server({.folder = folder.path() + "/own", .server = 0, .num_servers = 1});
  fs::create_directories(folder.path() + "/.unfinished-other");
  for (const std::string name : {"", ".", "..", "checkpoint-000000000001",
                                 ".unfinished-/../../.unfinished-other", "../.unfinished-other"})
    EXPECT_THROW(server.save(name, {}), InvalidArgument) << name;
  EXPECT_THAT(
      [&] { server.save(".unfinished-other", {}); },
      ThrowsMessage<CheckpointError>(HasSubstr("own/.unfinished-other: expected a folder that all servers")));
}

TEST(ServerCheckpointTest, RefusesOptionsOutOfRange) {
  EXPECT_THROW(ServerCheckpoint({.folder = "", .server = 0, .num_servers = 1}), InvalidArgument);
  const TemporaryFolder folder;
  EXPECT_THROW(ServerCheckpoint({.folder = folder.path(), .server = 2, .num_servers = 2}), InvalidArgument);
  EXPECT_THROW(ServerCheckpoint({.folder = folder.path(), .server = -1, .num_servers = 2}), InvalidArgument);
}

// A restarted server answers from its checkpoint, without its clients' help.
TEST(ServerCheckpointTest, AServiceAnswersFromWhatWasSaved) {
  const TemporaryFolder folder;
  const auto servers = trained_servers();
  ServerCheckpoints(folder.path()).save(servers, 3);
  const auto storage = std::make_shared<ServerCheckpoint>(
      ServerCheckpointOptions{.folder = folder.path(), .server = 1, .num_servers = 2});
  ParameterService service(storage);
  for (auto& shard : storage->take_own()) service.restore(std::move(shard));
  const auto pulled = decode_pulled(service.handle(encode_request(PullShards{{{"wide", {}}}})));
  EXPECT_TRUE(pulled.at(0).values.equal(servers[1][1].shard->pull().values));
  EXPECT_EQ(pulled.at(0).version, 3U);
}

constexpr int kSavedBits = 30;

HeldShard growing_table(const std::string& name, const RowRange& rows) {
  const FilteredRows filtered{{.min_frequency = 2, .steps_to_live = 9}, NormalValues{.seed = 4}, rows};
  const RowGrowth growth{.max_bytes = 50'000, .num_bits = kSavedBits};
  auto shard = std::make_shared<ParameterShard>(name, torch::empty({0, 3}), AdamRule{}, filtered, growth);
  for (uint64_t closure = 0; closure < 4; ++closure)
    shard->push_rows(torch::arange(0, 5 + static_cast<int64_t>(closure)) * 1000,
                     torch::randn({5 + static_cast<int64_t>(closure), 3}), {.id = {closure, 0}, .lr = 0.1});
  return {"grown", rows, std::move(shard)};
}

TEST(ServerCheckpoint, ATableThatGrowsComesBackExactlyAndWithAnotherNumberOfServers) {
  const TemporaryFolder folder;
  ServerCheckpoints checkpoints(folder.path());
  const int64_t all = int64_t{1} << kSavedBits;
  const std::vector<std::vector<HeldShard>> servers{{growing_table("grown/part_0", {0, all / 2})},
                                                    {growing_table("grown/part_1", {all / 2, all})}};
  checkpoints.save(servers, 4);
  ServerCheckpoint same({.folder = folder.path(), .server = 1, .num_servers = 2});
  const auto own = same.take_own();
  ASSERT_EQ(own.size(), 1U);
  EXPECT_EQ(own[0].shard->growth(), servers[1][0].shard->growth());
  EXPECT_EQ(own[0].shard->filtered(), servers[1][0].shard->filtered());
  expect_equal(own[0].shard->save(), servers[1][0].shard->save());

  ServerCheckpoint single({.folder = folder.path(), .server = 0, .num_servers = 1});
  const FilteredRows whole{own[0].shard->filtered()->filter, own[0].shard->filtered()->initial, {0, all}};
  const auto found = single.find_growing("grown", whole, *own[0].shard->growth());
  ASSERT_TRUE(found);
  ParameterShard united("grown", found->values, AdamRule{}, whole, own[0].shard->growth());
  united.restore(*found);
  EXPECT_EQ(united.extent().rows, servers[0][0].shard->extent().rows + servers[1][0].shard->extent().rows);
  for (const auto& [variable, rows, shard] : {servers[0][0], servers[1][0]}) {
    const auto numbers = torch::arange(0, 9) * 1000;
    EXPECT_TRUE(united.pull_rows(numbers + rows.begin).values.equal(shard->pull_rows(numbers).values));
  }
  EXPECT_FALSE(single.find_growing("other", whole, *own[0].shard->growth()));
}

TEST(ServerCheckpoint, ATableInMemoryComesBackOnDisk) {
  if (!has_disk_row_store()) GTEST_SKIP() << "built without RocksDB";
  const TemporaryFolder folder;
  ServerCheckpoints checkpoints(folder.path() + "/backup");
  const RowRange all{0, int64_t{1} << kSavedBits};
  const auto saved = growing_table("grown", all);
  checkpoints.save({{saved}}, 4);
  const auto disk = std::make_shared<RowDisk>(folder.path() + "/rows");
  const auto storage = std::make_shared<ServerCheckpoint>(ServerCheckpointOptions{
      .folder = folder.path() + "/backup", .server = 0, .num_servers = 1, .on_message = {}, .disk = disk});
  // Its limit of 50,000 bytes is too small for a disk, so it waits until a client says the new one.
  EXPECT_THAT(storage->take_own(), IsEmpty());
  ParameterService service(storage, {}, disk);
  const CreateShard request{.shard = "grown",
                            .variable = "grown",
                            .rows = all,
                            .values = torch::empty({0, 3}),
                            .initial = saved.shard->filtered()->initial,
                            .rule = AdamRule{},
                            .filter = saved.shard->filtered()->filter,
                            .growth = RowGrowth{.max_bytes = int64_t{1} << 24, .num_bits = kSavedBits}};
  EXPECT_EQ(decode_created(service.handle(encode_request(request))).origin, ShardOrigin::kRestored);
  const auto numbers = torch::arange(0, 9) * 1000;
  EXPECT_TRUE(
      service.shard("grown")->pull_rows(numbers).values.equal(saved.shard->pull_rows(numbers).values));
  EXPECT_EQ(service.shard("grown")->extent().rows, saved.shard->extent().rows);
}

}  // namespace
}  // namespace lockstep
