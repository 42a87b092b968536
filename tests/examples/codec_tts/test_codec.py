"""The codec on random weights: its transforms invert, its decoder looks back only, its codes are the nearest."""

import pytest
import torch

from examples.codec_tts import codec, generation

FRAMES = 12


@pytest.fixture(scope="module")
def model() -> codec.Codec:
    torch.manual_seed(1)
    return codec.Codec(codec.Config(width=24, blocks=2, latent=8, entries=16)).eval()


def _noise(frames: int) -> torch.Tensor:
    return torch.randn(1, frames, generation.CODE_SAMPLES, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("window", [32, codec.WINDOW])
def test_the_inverse_transform_inverts(window: int) -> None:
    samples = torch.randn(3, window, generator=torch.Generator().manual_seed(1))
    spectra = samples @ codec.fourier_basis(window)
    expected = torch.fft.rfft(samples)
    torch.testing.assert_close(spectra, torch.cat([expected.real, expected.imag], dim=-1), atol=1e-4, rtol=0)
    torch.testing.assert_close(spectra @ codec.inverse_basis(window), samples, atol=1e-4, rtol=0)


def test_overlapping_pieces_with_gains_of_one_come_back_a_piece_later(model: codec.Codec) -> None:
    noise = _noise(FRAMES)
    gains = torch.cat([torch.full((codec.BINS,), -200.0), torch.zeros(codec.BINS)]).expand(1, 2 * FRAMES, -1)
    waveform = model.decoder.sound(torch.zeros(1, 2 * FRAMES), gains, noise)
    expected = noise.flatten(1)[:, : -codec.DELAY_SAMPLES]
    torch.testing.assert_close(waveform[:, codec.DELAY_SAMPLES :], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("hertz", [100.0, 250.0])
def test_pulses_have_the_pitch_that_steers_them(model: codec.Codec, hertz: float) -> None:
    gains = torch.cat([torch.zeros(codec.BINS), torch.full((codec.BINS,), -200.0)]).expand(1, 100, -1)
    octaves = torch.full((1, 100), float(torch.tensor(hertz / codec.NEUTRAL_HZ).log2()))
    waveform = model.decoder.sound(octaves, gains, _noise(50))[0, codec.DELAY_SAMPLES :]
    loudest = torch.fft.rfft(waveform[:14400] * torch.hann_window(14400)).abs()[50:400].argmax() + 50
    overtones = float(loudest) * 16000 / 14400 / hertz
    assert overtones == pytest.approx(round(overtones), abs=0.01)


def test_later_codes_change_no_earlier_sample(model: codec.Codec) -> None:
    codes = torch.randint(0, 16, (1, FRAMES, 4), generator=torch.Generator().manual_seed(3))
    other = codes.clone()
    other[:, 7:] = (other[:, 7:] + 5) % 16
    noise = _noise(FRAMES)
    first, second = model.decode(codes, noise), model.decode(other, noise)
    torch.testing.assert_close(
        first[:, : 7 * generation.CODE_SAMPLES], second[:, : 7 * generation.CODE_SAMPLES], atol=1e-6, rtol=0
    )
    assert not torch.allclose(first[:, 7 * generation.CODE_SAMPLES :], second[:, 7 * generation.CODE_SAMPLES :])


def test_a_prefix_decodes_as_the_whole_does(model: codec.Codec) -> None:
    codes = torch.randint(0, 16, (2, FRAMES, 4), generator=torch.Generator().manual_seed(4))
    noise = _noise(FRAMES).expand(2, -1, -1)
    whole = model.decode(codes, noise)
    part = model.decode(codes[:, :5], noise[:, :5])
    torch.testing.assert_close(whole[:, : 5 * generation.CODE_SAMPLES], part, atol=1e-5, rtol=0)


def test_codes_are_the_nearest_entries_of_what_is_left(model: codec.Codec) -> None:
    latents = torch.randn(1, 6, 8, generator=torch.Generator().manual_seed(5))
    codes = model.quantiser(latents)
    left = latents
    for book in range(4):
        table = model.quantiser.tables[book]
        assert torch.equal(codes[..., book], torch.cdist(left, table[None]).argmin(dim=-1))
        left = left - table[codes[..., book]]
    torch.testing.assert_close(model.quantiser.look_up(codes), latents - left)


def test_one_code_frame_per_20_ms(model: codec.Codec) -> None:
    waveform = torch.randn(2, FRAMES * generation.CODE_SAMPLES, generator=torch.Generator().manual_seed(6)) * 0.1
    codes = model.encode(waveform)
    assert codes.shape == (2, FRAMES, 4) and codes.dtype == torch.int64
    assert model(waveform, _noise(FRAMES).expand(2, -1, -1)).shape == waveform.shape
    assert model.decode(codes[..., :1], _noise(FRAMES).expand(2, -1, -1)).shape == waveform.shape
