// Writes inputs for the fuzz programs, made by the project's own writers and those of its tests. Some are
// valid; others are wrong in one way each, which random changes would rarely produce:
//   write_seeds <folder>    each as <folder>/<program>/<name>
// The output is the same each time. Text inputs and those that once failed are in corpus/.

#include <webp/encode.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "lockstep/datasets/clicks/click_row.h"
#include "lockstep/datasets/clicks/internal/row_index.h"
#include "lockstep/datasets/tokens/internal/token_layout.h"
#include "lockstep/runtime/base/net/channel_identity.h"
#include "lockstep/runtime/base/net/secret_message.h"
#include "lockstep/runtime/exchange/exchange_message.h"
#include "lockstep/runtime/exchange/link_handshake.h"
#include "lockstep/runtime/rpc/rpc_format.h"
#include "lockstep/runtime/store/store_message.h"
#include "lockstep/runtime/workers/heartbeat_message.h"
#include "lockstep/runtime/workers/worker_info.h"
#include "lockstep/tests/datasets/text/small_tokenizers.h"
#include "lockstep/tests/support/test_files.h"
#include "lockstep/training/formats/internal/pickle_writer.h"
#include "lockstep/training/formats/internal/safetensors_header.h"

namespace lockstep::fuzz {
namespace {

using testing::Bytes;

class SeedFolder {
 public:
  explicit SeedFolder(std::string path) : path_(std::move(path)) {}

  void write(const std::string& name, std::string_view bytes) const {
    const auto file = std::filesystem::path(path_) / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream stream(file, std::ios::binary | std::ios::trunc);
    stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!stream.flush()) throw std::runtime_error("cannot write " + file.string());
  }
  void write(const std::string& name, const Bytes& bytes) const {
    write(name, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }

 private:
  std::string path_;
};

void append_big_endian(Bytes& out, uint64_t value, size_t num_bytes = 4) {
  for (size_t i = num_bytes; i-- > 0;) out.push_back(static_cast<uint8_t>(value >> (8 * i)));
}

/// In zlib's format or, with `window_bits` 31, gzip's.
Bytes deflated(const Bytes& plain, int window_bits = 15) {
  z_stream stream{};
  if (deflateInit2(&stream, 9, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::bad_alloc();
  Bytes bytes(deflateBound(&stream, plain.size()) + 32);
  stream.next_in = const_cast<Bytef*>(plain.data());
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = bytes.data();
  stream.avail_out = static_cast<uInt>(bytes.size());
  deflate(&stream, Z_FINISH);
  bytes.resize(stream.total_out);
  deflateEnd(&stream);
  return bytes;
}

void append_png_chunk(Bytes& out, std::string_view type, const Bytes& content) {
  append_big_endian(out, content.size());
  const size_t begin = out.size();
  out.insert(out.end(), type.begin(), type.end());
  out.insert(out.end(), content.begin(), content.end());
  append_big_endian(out, crc32(0, out.data() + begin, static_cast<uInt>(out.size() - begin)));
}

struct PngKind {
  uint8_t depth;
  uint8_t colour;  ///< as in the PNG header: 0 grey, 2 RGB, 3 palette, 4 and 6 with alpha
  bool is_interlaced = false;
};

/// Eight by eight pixels of any kind. The image has as many bytes as the kind may need; a decoder accepts
/// spare ones with a warning.
Bytes png_of(const PngKind& kind) {
  Bytes bytes = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  Bytes header;
  append_big_endian(header, 8);
  append_big_endian(header, 8);
  header.insert(header.end(), {kind.depth, kind.colour, 0, 0, static_cast<uint8_t>(kind.is_interlaced)});
  append_png_chunk(bytes, "IHDR", header);
  if (kind.colour == 3) append_png_chunk(bytes, "PLTE", {0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255});
  const size_t channels = kind.colour == 2 ? 3 : kind.colour == 4 ? 2 : kind.colour == 6 ? 4 : 1;
  const auto row_bytes = [&](size_t width) { return 1 + (width * channels * kind.depth + 7) / 8; };
  Bytes rows;
  if (kind.is_interlaced) {
    // Width and number of rows of each Adam7 pass over eight by eight pixels.
    constexpr std::pair<size_t, size_t> kPasses[] = {{1, 1}, {1, 1}, {2, 1}, {2, 2}, {4, 2}, {4, 4}, {8, 4}};
    for (const auto& [width, count] : kPasses) rows.resize(rows.size() + count * row_bytes(width));
  } else {
    rows.resize(8 * row_bytes(8));
  }
  append_png_chunk(bytes, "IDAT", deflated(rows));
  append_png_chunk(bytes, "IEND", {});
  return bytes;
}

Bytes idx_of(const std::vector<uint32_t>& dimensions) {
  Bytes bytes = {0, 0, 8, static_cast<uint8_t>(dimensions.size())};
  size_t count = 1;
  for (const uint32_t dimension : dimensions) {
    append_big_endian(bytes, dimension);
    count *= dimension;
  }
  for (size_t i = 0; i < count; ++i) bytes.push_back(static_cast<uint8_t>(i));
  return bytes;
}

void write_webp_seeds(const SeedFolder& folder) {
  constexpr int kWidth = 7;
  constexpr int kHeight = 9;
  const auto image = testing::make_image(kHeight, kWidth, 4);
  for (const bool is_lossless : {false, true}) {
    uint8_t* memory = nullptr;
    const size_t size =
        is_lossless ? WebPEncodeLosslessRGBA(image.pixels.data(), kWidth, kHeight, 4 * kWidth, &memory)
                    : WebPEncodeRGBA(image.pixels.data(), kWidth, kHeight, 4 * kWidth, 75, &memory);
    if (size == 0) throw std::runtime_error("cannot encode a WebP image");
    folder.write(is_lossless ? "webp_decoder/lossless" : "webp_decoder/lossy", Bytes(memory, memory + size));
    WebPFree(memory);
  }
}

/// The same EXIF data in each container.
void write_exif_seeds(const SeedFolder& folder) {
  const std::string_view exif("II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0\0\0\0\0", 26);
  const auto image = testing::make_image(2, 2, 1);
  folder.write("exif_orientation/png",
               testing::with_png_chunk(testing::encode_png(image), "eXIf", testing::to_bytes(exif)));
  using namespace std::string_literals;
  folder.write("exif_orientation/jpeg",
               "\xFF\xD8\xFF\xE1\0\x22"s + "Exif\0\0"s + std::string(exif) + "\xFF\xDA");
  folder.write("exif_orientation/webp", "RIFF\x26\0\0\0WEBPEXIF\x1A\0\0\0"s + std::string(exif));
}

void write_image_seeds(const SeedFolder& folder) {
  for (const int64_t channels : {1, 3}) {
    const auto image = testing::make_image(9, 7, channels);
    const std::string name = std::to_string(channels) + "_channels";
    folder.write("png_decoder/" + name, testing::encode_png(image));
    folder.write("jpeg_decoder/" + name, testing::encode_jpeg(image));
    folder.write("jpeg_decoder/" + name + "_progressive", testing::encode_jpeg(image, /*progressive=*/true));
  }
  folder.write("jpeg_decoder/4_channels", testing::encode_jpeg(testing::make_image(2, 2, 4)));
  write_webp_seeds(folder);
  write_exif_seeds(folder);
  int number = 0;
  for (const PngKind& kind : {PngKind{1, 0}, PngKind{2, 0}, PngKind{16, 0}, PngKind{2, 3}, PngKind{8, 4},
                              PngKind{16, 6}, PngKind{4, 0, true}, PngKind{8, 2, true}})
    folder.write("png_decoder/kind_" + std::to_string(number++), png_of(kind));
}

/// A state of one tensor. Checksums of zero mean that there is no checksum: changes reach the code behind it.
Bytes checkpoint_of(PickledTensor tensor) {
  tensor.storage = "0";
  const Bytes content(tensor.storage_bytes, 1);
  PickleValue::Dict state;
  state.add("weight", std::move(tensor));
  std::vector<testing::RawZipEntry> entries = {
      testing::stored_entry("state/data.pkl", testing::to_bytes(write_pickle(state))),
      testing::stored_entry("state/byteorder", testing::to_bytes("little")),
      testing::stored_entry("state/data/0", content)};
  for (auto& entry : entries) entry.checksum = 0;
  return testing::make_raw_zip(entries);
}

void write_archive_seeds(const SeedFolder& folder) {
  const Bytes image = testing::encode_png(testing::make_image(2, 2, 1));
  const Bytes text = testing::to_bytes(std::string(300, 'a'));
  Bytes raw = deflated(text);
  raw = Bytes(raw.begin() + 2, raw.end() - 4);  // a zip entry has neither zlib's header nor its checksum
  const Bytes classes = testing::make_raw_zip(
      {testing::stored_entry("train/0/a.png", image),
       {.name = "train/1/b.png",
        .content = raw,
        .size = text.size(),
        .checksum = static_cast<uint32_t>(crc32(0, text.data(), static_cast<uInt>(text.size()))),
        .is_deflated = true}});
  const Bytes checkpoint =
      testing::make_raw_zip({testing::stored_entry("state/data.pkl", {0x80, 2, 'N', '.'}),
                             testing::stored_entry("state/data/0", Bytes(8, 1))});
  for (const std::string program : {"zip_archive", "zip_directory"}) {
    folder.write(program + "/classes", classes);
    folder.write(program + "/checkpoint", checkpoint);
    folder.write(program + "/empty", testing::make_raw_zip({}));
  }
  folder.write("state_file/checkpoint", checkpoint);
  folder.write(
      "state_file/untyped",
      checkpoint_of({.dtype = "uint16", .storage_bytes = 12, .offset = 1, .shape = {5}, .strides = {1}}));
}

/// The directory's second entry points to the place of the first one.
Bytes overlapping(Bytes archive) {
  constexpr std::array<uint8_t, 4> kEntry = {'P', 'K', 1, 2};
  constexpr ptrdiff_t kPlace = 42;
  auto entry = std::search(archive.begin(), archive.end(), kEntry.begin(), kEntry.end());
  entry = std::search(entry + 1, archive.end(), kEntry.begin(), kEntry.end());
  std::fill_n(entry + kPlace, 4, uint8_t{0});
  return archive;
}

void write_lying_archives(const SeedFolder& folder) {
  const auto entry = testing::stored_entry("a", {1, 2, 3});
  auto link = entry;
  link.unix_mode = 0120777;
  auto encrypted = entry;
  encrypted.is_encrypted = true;
  auto large = entry;
  large.size = uint64_t{1} << 31;
  large.is_deflated = true;
  auto damaged = entry;
  ++damaged.checksum;
  int number = 0;
  for (const auto& lie : {link, encrypted, large, damaged})
    folder.write("zip_archive/lie_" + std::to_string(number++), testing::make_raw_zip({lie}));
  for (const std::string name :
       {"", "..", "../a", "a/../b", "./a", "a//b", "/a", "a\\b", "C:a", "a/", "a/.."})
    folder.write("zip_archive/name_" + std::to_string(number++),
                 testing::make_raw_zip({testing::stored_entry(name, {1})}));
  const Bytes twice = testing::make_raw_zip({entry, entry});
  const Bytes shared = overlapping(testing::make_raw_zip({entry, testing::stored_entry("b", {1, 2, 3})}));
  for (const std::string program : {"zip_archive", "zip_directory"}) {
    folder.write(program + "/name_twice", twice);
    folder.write(program + "/overlapping", shared);
  }
}

/// A list that repeats a text at two bytes each time, lists that do so at many levels, and a list in itself.
void write_repeating_pickles(const SeedFolder& folder) {
  const std::string begin = "\x80\x02";
  std::string list =
      begin + "X" + '\xE8' + '\x03' + std::string(2, '\0') + std::string(1000, 'x') + "q" + '\0' + "](";
  for (int i = 0; i < 1000; ++i) list += std::string("h") + '\0';
  folder.write("pickle/repeated_text", list + "e.");
  std::string levels = begin + "N";
  for (int level = 0; level < 14; ++level) {
    const std::string place(1, static_cast<char>(level));
    levels += "q" + place + "](" + "h" + place + "h" + place + "e";
  }
  folder.write("pickle/doubled_levels", levels + ".");
  folder.write("pickle/list_in_itself", begin + "]q" + '\0' + "h" + '\0' + "a.");
}

void write_checkpoint_seeds(const SeedFolder& folder) {
  PickleValue::Dict dict;
  dict.add("none", PickleValue());
  dict.add("numbers", PickleValue::List{true, false, 0, -1, 300, int64_t{1} << 40, INT64_MIN, 1.5});
  dict.add(7, PickleValue::Tuple{{"text", PickleValue::Tuple{}, PickleValue::Dict()}});
  dict.add("typed", PickledTensor{.dtype = "float32",
                                  .storage = "0",
                                  .storage_bytes = 24,
                                  .offset = 0,
                                  .shape = {2, 3},
                                  .strides = {3, 1}});
  dict.add("untyped", PickledTensor{.dtype = "uint16", .storage = "1", .storage_bytes = 2});
  folder.write("pickle/every_kind", write_pickle(dict));

  const auto header = place_safetensors({{.name = "weight", .dtype = "F32", .shape = {2, 3}},
                                         {.name = "bias", .dtype = "BF16", .shape = {3}},
                                         {.name = "empty", .dtype = "I64", .shape = {0, 4}}},
                                        {{"format", "pt"}});
  const auto data_size = header.tensors.back().end;
  folder.write("safetensors_header/three_tensors",
               std::string{static_cast<char>(data_size), '\0'} +
                   write_safetensors_header(header).substr(kSafetensorsLengthBytes));
  const auto two_tensors = [](const std::string& second) {
    return std::string("\x0C\0", 2) + R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":)" +
           second + "}";
  };
  folder.write("safetensors_header/gap", two_tensors(R"({"dtype":"F32","shape":[1],"data_offsets":[8,12]})"));
  folder.write("safetensors_header/overlap",
               two_tensors(R"({"dtype":"F64","shape":[1,1],"data_offsets":[4,12]})"));
}

void write_message_seeds(const SeedFolder& folder) {
  HeartbeatSeal seal(JobToken::from_text("a secret of the job's processes"), {.rank = 3});
  const auto packet = seal.seal({.kind = HeartbeatKind::kLeaving,
                                 .sequence = 2,
                                 .sender = 3,
                                 .receiver = 4,
                                 .lost = 5,
                                 .reason = LossReason::kSilent});
  folder.write("heartbeat_message/packet", Bytes(packet.begin(), packet.end()));
  // The program seals its input: the header and the fields.
  Bytes unsealed(packet.begin(), packet.begin() + kHeartbeatHeaderBytes);
  for (const uint8_t byte : {1, 2, 4, 0, 0, 0, 5, 0, 0, 0}) unsealed.push_back(byte);
  folder.write("heartbeat_message/fields", unsealed);
  const auto identity = encode_identity(
      {.purpose = "rpc", .client = "worker 1", .server = "ps 0", .number = 2, .generation = 3});
  folder.write("channel_identity/identity", Bytes(identity.begin(), identity.end()));
  folder.write("tls_records/key_update", Bytes{22, 24, 0, 0, 1, 0});
  folder.write("tls_records/close_notify", Bytes{21, 1, 0});
  folder.write("tls_records/values", Bytes{23, 1, 2, 3});
  auto question = encode(SecretRequest{.job = "42.0", .source = "MUNGE", .proof = {1, 2, 3}});
  // The first byte is the program's own.
  question.erase(question.begin(), question.begin() + kSecretSizeBytes - 1);
  question.front() = 0;
  folder.write("secret_message/request", Bytes(question.begin(), question.end()));
  auto answer = encode(SecretReply{.proof = {1, 2, 3}, .secret = "00ff"});
  answer.erase(answer.begin(), answer.begin() + kSecretSizeBytes - 1);
  answer.front() = 1;
  folder.write("secret_message/reply", Bytes(answer.begin(), answer.end()));
  folder.write("worker_info/card", WorkerInfo{.host = "node\t1",
                                              .address = "10.0.0.1",
                                              .heartbeat_port = 4711,
                                              .heartbeat_session = "a session",
                                              .num_replicas = 2,
                                              .facts = {{"world size", "2"}, {"line\nend", "a\\b"}}}
                                       .text());
  const auto frame =
      encode_frame({.kind = RpcKind::kReply, .head_bytes = 40, .tensor_bytes = uint64_t{1} << 33});
  folder.write("rpc_format/frame", Bytes(frame.begin(), frame.end()));
  const auto head =
      encode_head({.tensors = {{RpcDtype::kFloat32, {3, 4}}, {RpcDtype::kInt64, {}}}, .fields = {1, 2, 3}});
  folder.write("rpc_format/head", Bytes(head.begin(), head.end()));
  const auto message = encode({.generation = 1,
                               .sequence = 2,
                               .fingerprint = 3,
                               .number = 4,
                               .payload_bytes = uint64_t{1} << 33,
                               .text = "all_reduce sum of float32 [3, 4]"});
  folder.write("exchange_message/header", Bytes(message.begin(), message.end()));
  const auto request = encode(StoreRequest{.id = 1,
                                           .op = StoreOp::kGet,
                                           .number = 2,
                                           .keys = {"worker/0", "worker/1"},
                                           .values = {"a"},
                                           .unless = {"given up"}});
  folder.write("store_message/request", Bytes(request.begin(), request.end()));
  const auto reply = encode(StoreReply{.id = 1, .status = StoreStatus::kDone, .number = 2, .values = {"a"}});
  folder.write("store_message/reply", Bytes(reply.begin() + 4, reply.end()));
  auto greeting = make_link_greeting();
  std::fill(greeting.begin() + 6, greeting.end(), uint8_t{0});  // its random bytes
  folder.write("exchange_message/greeting", Bytes(greeting.begin(), greeting.end()));
}

void write_click_seeds(const SeedFolder& folder) {
  for (const uint64_t count : {1, 3, 900}) {
    std::string bytes;
    RowIndexWriter writer([&](std::string_view piece) { bytes += piece; });
    for (uint64_t row = 0; row < count; ++row) writer.add(250 * row, "file");
    const std::string header = writer.finish({.source = {.size = 250 * count, .modified_ns = 1},
                                              .rows = {.size = 250 * count, .modified_ns = 1},
                                              .num_malformed = 1,
                                              .first_malformed = "line 3: no"});
    bytes.replace(0, header.size(), header);
    folder.write("row_index/" + std::to_string(count), bytes);
  }
  ClickRow row{.is_click = true};
  const std::string empty = click_row_text(row);
  row.numbers.fill(-7);
  row.categories.fill(0x05db9164);
  const std::string full = click_row_text(row);
  folder.write("click_rows/empty", empty + "\n");
  folder.write("click_rows/full", full + "\n" + full + "\r\n" + empty);
  folder.write("click_rows/malformed", full + "\n\n" + full + "\t\n2" + full.substr(1) + "\n");
}

/// Files without the tokens of bytes, which the program adds, and texts of all kinds.
void write_tokenizer_seeds(const SeedFolder& folder) {
  int number = 0;
  for (nlohmann::json json : {testing::byte_level_json(), testing::character_json()}) {
    folder.write("tokenizer_json/whole_" + std::to_string(number), json.dump());
    for (const bool is_byte_level : {true, false})
      for (int byte = 0; byte < 256; ++byte)
        if (byte != 'e') json["model"]["vocab"].erase(testing::token_of_byte(byte, is_byte_level));
    folder.write("tokenizer_json/short_" + std::to_string(number), json.dump());
    json["normalizer"] = {{"type", "NFKC"}};
    json["added_tokens"].push_back({{"id", 300},
                                    {"content", "x1"},
                                    {"single_word", true},
                                    {"lstrip", true},
                                    {"rstrip", true},
                                    {"normalized", true},
                                    {"special", false}});
    json["pre_tokenizer"] = {{"type", "Sequence"},
                             {"pretokenizers",
                              {{{"type", "Split"},
                                {"pattern", {{"Regex", R"(\s+(?!\S)|[^\p{L}\S]{1,3})"}}},
                                {"behavior", "MergedWithNext"}},
                               {{"type", "Digits"}, {"individual_digits", false}},
                               {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "first"}},
                               {{"type", "ByteLevel"}, {"add_prefix_space", true}}}}};
    folder.write("tokenizer_json/steps_" + std::to_string(number++), json.dump());
  }
  folder.write("tokenizer_text/mixed",
               "hello hello's  12\n\n<|endoftext|><s>\xFF\xC3\xA9t\xE2\x96\x81hi\xF0\x9F\x98\x80 ...");
}

void write_token_seeds(const SeedFolder& folder) {
  for (const int width : {2, 4}) {
    const TokenLayout layout{.bytes_per_token = width, .num_tokens = 3};
    folder.write("token_layout/" + std::to_string(width) + "_bytes",
                 token_header(layout, {1, 2, 3, 4}) + std::string(3 * static_cast<size_t>(width), 'x'));
  }
}

void write_seeds(const SeedFolder& folder) {
  write_token_seeds(folder);
  write_tokenizer_seeds(folder);
  write_click_seeds(folder);
  write_image_seeds(folder);
  write_archive_seeds(folder);
  write_lying_archives(folder);
  write_repeating_pickles(folder);
  write_checkpoint_seeds(folder);
  write_message_seeds(folder);
  folder.write("idx_file/labels", idx_of({3}));
  folder.write("idx_file/images", idx_of({2, 3, 4}));
  folder.write("idx_file/images_gzip", deflated(idx_of({2, 3, 4}), 31));
}

}  // namespace
}  // namespace lockstep::fuzz

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "expected a folder, but got " << argc - 1 << " arguments\n";
    return 2;
  }
  lockstep::fuzz::write_seeds(lockstep::fuzz::SeedFolder(argv[1]));
}
